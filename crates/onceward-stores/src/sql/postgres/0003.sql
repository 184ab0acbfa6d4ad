-- Every step down the primary key compares columns until two differ. Scopes are few and operations fewer, so the
-- key comes before the operation; the receipts of a scope still lie side by side.
-- (The old one may have another name than usual: that of a table which was renamed stays with that table.)
DO $$
DECLARE
    old name;
BEGIN
    SELECT conname INTO STRICT old FROM pg_constraint
    WHERE conrelid = 'onceward_receipts'::regclass AND contype = 'p';
    EXECUTE format('ALTER TABLE onceward_receipts DROP CONSTRAINT %I, ADD PRIMARY KEY (scope, key, operation)', old);
END
$$;

-- Every statement that writes prepares the condition of an index anew, and a row cannot stay in its place when a
-- column of such a condition changes. One index of due times without any does for sweeps and for free rows.
DROP INDEX IF EXISTS onceward_receipts_free;
DROP INDEX IF EXISTS onceward_receipts_due;
CREATE INDEX onceward_receipts_due ON onceward_receipts (due);
