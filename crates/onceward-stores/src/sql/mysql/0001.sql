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
