-- Times are microseconds since 1970; the view below spells them out.
CREATE TABLE onceward_receipts (
    scope      TEXT NOT NULL,
    operation  TEXT NOT NULL,
    key        TEXT NOT NULL,
    state      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    due        INTEGER,
    created    INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    receipt    BLOB NOT NULL,
    PRIMARY KEY (scope, key, operation)
) STRICT, WITHOUT ROWID;

-- For what is due, and for what is in one state. What is done and kept forever is in neither list.
CREATE INDEX onceward_receipts_due ON onceward_receipts (state, due, scope, key, operation)
    WHERE due IS NOT NULL OR state <> 'done';

-- The highest version ever given, over all ids: removed ids need no memory of their own, and tables that were
-- dropped leave it behind.
CREATE TABLE IF NOT EXISTS onceward_version
    (one INTEGER PRIMARY KEY CHECK (one = 1), version_max INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO onceward_version VALUES (1, 0);

DROP VIEW IF EXISTS onceward_readable;
CREATE VIEW onceward_readable AS SELECT scope, operation, key, state, version,
    strftime('%Y-%m-%d %H:%M:%f', due / 1000000.0, 'unixepoch') AS due,
    strftime('%Y-%m-%d %H:%M:%f', created / 1000000.0, 'unixepoch') AS created,
    strftime('%Y-%m-%d %H:%M:%f', updated / 1000000.0, 'unixepoch') AS updated,
    length(receipt) AS receipt_bytes
FROM onceward_receipts;
