CREATE TABLE IF NOT EXISTS onceward_identity (
    one        TINYINT NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    identity   VARBINARY(16) NOT NULL,
    seal_key   VARBINARY(32) NOT NULL,
    renewed    TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;
CREATE TABLE onceward_receipts (
    scope      VARBINARY(255) NOT NULL,
    operation  VARBINARY(512) NOT NULL,
    `key`      VARBINARY(255) NOT NULL,
    state      VARBINARY(16) NOT NULL,
    version    BIGINT NOT NULL,
    due        DATETIME(6),
    created    DATETIME(6) NOT NULL,
    updated    DATETIME(6) NOT NULL,
    receipt    LONGBLOB NOT NULL,
    writer     BINARY(16) NOT NULL,
    PRIMARY KEY (scope, `key`, operation),
    KEY onceward_receipts_due (state, due)
) ENGINE = InnoDB
