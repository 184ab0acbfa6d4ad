-- Times are microseconds since 1970; the view below spells them out.
CREATE TABLE onceward_receipts (
    scope      TEXT NOT NULL,
    operation  TEXT NOT NULL,
    key        TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('held', 'done', 'unknown', 'gone')),
    version    INTEGER NOT NULL CHECK (version > 0),
    due        INTEGER,
    created    INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    receipt    BLOB NOT NULL,
    PRIMARY KEY (scope, operation, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_receipts_due ON onceward_receipts (due, scope, operation, key) WHERE due IS NOT NULL;

-- The highest version ever given, over all ids: removed ids need no memory of their own.
CREATE TABLE onceward_version (one INTEGER PRIMARY KEY CHECK (one = 1), version_max INTEGER NOT NULL) STRICT;
INSERT INTO onceward_version VALUES (1, 0);

CREATE VIEW onceward_readable AS SELECT scope, operation, key, state, version,
    strftime('%Y-%m-%d %H:%M:%f', due / 1000000.0, 'unixepoch') AS due,
    strftime('%Y-%m-%d %H:%M:%f', created / 1000000.0, 'unixepoch') AS created,
    strftime('%Y-%m-%d %H:%M:%f', updated / 1000000.0, 'unixepoch') AS updated,
    length(receipt) AS receipt_bytes
FROM onceward_receipts;
