-- Messages that were committed and are not yet published. Written inside the transactions of the user, read and removed
-- by relays. Texts are bytes, so that they are compared as they are.
CREATE TABLE IF NOT EXISTS onceward_outbox (
    -- The ordering key as one of 1,024 numbers.
    lane         INT NOT NULL,
    -- Counted up in the row of the lane, which stays locked until the commit.
    position     BIGINT NOT NULL,
    id           VARBINARY(255) NOT NULL,
    topic        VARBINARY(255) NOT NULL,
    ordering_key VARBINARY(255),
    headers      MEDIUMBLOB NOT NULL,
    payload      LONGBLOB NOT NULL,
    -- All times are UTC.
    created      DATETIME(6) NOT NULL,
    PRIMARY KEY (lane, position)
) ENGINE = InnoDB;

-- The last position of each lane. A transaction that adds messages counts up its lanes first: their rows are locked until
-- it has committed, so that within a lane positions are in the order of the commits.
CREATE TABLE IF NOT EXISTS onceward_lanes (
    lane INT PRIMARY KEY,
    n    BIGINT NOT NULL
) ENGINE = InnoDB;

-- Who works on which part of a flow: relays on groups of lanes, consumers on partitions, each under a lease (`until`).
CREATE TABLE IF NOT EXISTS onceward_parts (
    flow     VARBINARY(600) NOT NULL,
    part     INT NOT NULL,
    owner    VARBINARY(64),
    -- The same as in onceward_fences.
    fence    BIGINT NOT NULL DEFAULT 0,
    until    DATETIME(6),
    -- Consumers: everything up to here is handled.
    position BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (flow, part)
) ENGINE = InnoDB;

-- The fence of a part grows with every takeover. It is a row of its own: effects hold a shared lock on it, which must not
-- keep their process from renewing its lease.
CREATE TABLE IF NOT EXISTS onceward_fences (
    flow  VARBINARY(600) NOT NULL,
    part  INT NOT NULL,
    fence BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (flow, part)
) ENGINE = InnoDB;

-- The processes that share a flow, to divide the parts evenly.
CREATE TABLE IF NOT EXISTS onceward_members (
    flow   VARBINARY(600) NOT NULL,
    member VARBINARY(64) NOT NULL,
    until  DATETIME(6) NOT NULL,
    PRIMARY KEY (flow, member)
) ENGINE = InnoDB;

-- Who reads the outbox: relays to one broker, or one consumer. Another reader is refused while members of the flow live.
CREATE TABLE IF NOT EXISTS onceward_outbox_reader (
    id     INT PRIMARY KEY,
    reader VARBINARY(600) NOT NULL,
    flow   VARBINARY(600) NOT NULL
) ENGINE = InnoDB;

-- In all tables below, `consumer` is the name of the source, `/`, and the name of the consumer: two consumers of the same
-- name over two sources have nothing in common.

-- Messages that have failed and are still tried, and marks of those that may have ended their process.
CREATE TABLE IF NOT EXISTS onceward_tries (
    consumer   VARBINARY(520) NOT NULL,
    message_id VARBINARY(255) NOT NULL,
    tries      INT NOT NULL DEFAULT 0,
    -- Tries that began with this mark and have not ended: each of them ended with its process.
    started    INT NOT NULL DEFAULT 0,
    error      BLOB NOT NULL,
    first_at   DATETIME(6) NOT NULL,
    last_at    DATETIME(6) NOT NULL,
    PRIMARY KEY (consumer, message_id)
) ENGINE = InnoDB;

-- Messages that were given up, and those that wait behind them. No row is ever removed by itself: it is retried,
-- discarded or settled.
CREATE TABLE IF NOT EXISTS onceward_dead_letters (
    -- Within an ordering key: the order in which they arrived.
    number       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer     VARBINARY(520) NOT NULL,
    message_id   VARBINARY(255) NOT NULL,
    part         INT NOT NULL,
    -- dead: given up; behind: waits behind a dead one of its ordering key; retry: will be tried again
    state        VARBINARY(16) NOT NULL,
    topic        VARBINARY(255) NOT NULL,
    ordering_key VARBINARY(255),
    headers      MEDIUMBLOB NOT NULL,
    payload      LONGBLOB NOT NULL,
    tries        INT NOT NULL,
    error        BLOB NOT NULL,
    first_at     DATETIME(6) NOT NULL,
    last_at      DATETIME(6) NOT NULL,
    UNIQUE KEY onceward_dead_letters_id (consumer, message_id),
    KEY onceward_dead_letters_order (consumer, ordering_key, number),
    KEY onceward_dead_letters_state (consumer, state, part, number)
) ENGINE = InnoDB;

-- The ordering keys that have dead letters. No row: clear, messages are handled as they arrive. While there is one,
-- arrivals queue up in onceward_dead_letters.
CREATE TABLE IF NOT EXISTS onceward_sequences (
    consumer     VARBINARY(520) NOT NULL,
    ordering_key VARBINARY(255) NOT NULL,
    -- parked: nothing is tried; draining: what is queued is handled in its order
    state        VARBINARY(16) NOT NULL,
    part         INT NOT NULL,
    updated      DATETIME(6) NOT NULL,
    PRIMARY KEY (consumer, ordering_key),
    KEY onceward_sequences_state (consumer, state, part)
) ENGINE = InnoDB;

-- The last applied version of each entity.
CREATE TABLE IF NOT EXISTS onceward_versions (
    scope   VARBINARY(255) NOT NULL,
    entity  VARBINARY(512) NOT NULL,
    version BIGINT NOT NULL,
    updated DATETIME(6) NOT NULL,
    PRIMARY KEY (scope, entity)
) ENGINE = InnoDB;
