-- What a constraint or an index costs is paid by every claim and every completion. The store itself knows what it
-- writes, and says so when it reads what it cannot have written.
CREATE TABLE onceward_receipts (
    -- The id as numbers (`digest.rs`). Comparing texts would be most of what a look-up costs, and holding them most
    -- of the size of the index.
    id_high    bigint NOT NULL,
    id_middle  bigint NOT NULL,
    id_low     bigint NOT NULL,
    version    bigint NOT NULL,
    -- A number for the state: 1 waiting, 2 held, 3 unknown, 4 dead, 5 all others; and 5 for a claim that commits
    -- together with its outcome.
    open_state bigint NOT NULL,
    due        timestamptz,
    created    timestamptz NOT NULL,
    updated    timestamptz NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL,
    receipt    bytea NOT NULL,
    PRIMARY KEY (id_high, id_middle, id_low)
) WITH (
    -- A receipt is written twice and removed once. The dead halves are to go while they are few.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- For sweeps and workers, which must cost what is due in a state and not what is kept. By `open_state` and not by
-- `state`, because a row cannot stay in its place when an indexed column changes: where a claim commits together with
-- its outcome, neither of these does.
CREATE INDEX onceward_receipts_due ON onceward_receipts (open_state, due);

-- For lists of what is waiting, held, unknown or dead and never falls due. Claims have no entry here.
CREATE INDEX onceward_receipts_never ON onceward_receipts (open_state, id_high, id_middle, id_low)
    WHERE due IS NULL AND open_state < 5;

COMMENT ON TABLE onceward_receipts IS 'What became of each intent; kept by onceward. Look, but do not write.';

-- What the entries of a volatile front are sealed with. `onceward migrate --new-identity` replaces it.
CREATE TABLE onceward_identity (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity  bytea NOT NULL,
    seal_key  bytea NOT NULL,
    renewed   timestamptz NOT NULL DEFAULT clock_timestamp()
);
