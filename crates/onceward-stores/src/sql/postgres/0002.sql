-- What a constraint or an index costs is paid by every claim and every completion. The store itself knows
-- what it writes, and says so when it reads what it cannot have written.
ALTER TABLE onceward_receipts
    DROP CONSTRAINT IF EXISTS onceward_receipts_state_check,
    DROP CONSTRAINT IF EXISTS onceward_receipts_version_check;

-- Receipts of one batch fall due at the same moment, so this index has few different entries.
DROP INDEX IF EXISTS onceward_receipts_due;
CREATE INDEX onceward_receipts_due ON onceward_receipts (due) WHERE state <> 'free';
