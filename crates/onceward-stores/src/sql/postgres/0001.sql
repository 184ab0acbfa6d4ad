CREATE TABLE onceward_receipts (
    scope      text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL CHECK (state IN ('held', 'done', 'unknown', 'gone', 'free')),
    version    bigint NOT NULL CHECK (version > 0),
    due        timestamptz,
    created    timestamptz NOT NULL,
    updated    timestamptz NOT NULL,
    receipt    bytea NOT NULL,
    PRIMARY KEY (scope, operation, key)
) WITH (
    -- A receipt is written twice and removed once. The dead halves are to go while they are few.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- For the sweep, which must cost what is due and not what is kept.
CREATE INDEX onceward_receipts_due ON onceward_receipts (due, scope, operation, key)
    WHERE due IS NOT NULL AND state <> 'free';

CREATE INDEX onceward_receipts_free ON onceward_receipts (due) WHERE state = 'free';

COMMENT ON TABLE onceward_receipts IS 'What became of each intent; kept by onceward. Look, but do not write.';
