-- Messages that were committed and are not yet published. SQLite has one writer at a time, from its first write to its
-- commit: positions are in the order of the commits. AUTOINCREMENT never gives a position twice.
CREATE TABLE onceward_outbox (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The ordering key as one of 1,024 numbers.
    lane         INTEGER NOT NULL,
    id           TEXT NOT NULL,
    topic        TEXT NOT NULL,
    ordering_key TEXT,
    headers      TEXT NOT NULL,
    payload      BLOB NOT NULL,
    -- Times are in microseconds since 1970.
    created      INTEGER NOT NULL
) STRICT;
CREATE INDEX onceward_outbox_lane ON onceward_outbox (lane, position);

-- Who works on which part of a flow: relays on groups of lanes, consumers on partitions. A part is worked on under a
-- lease (`until`) and a fence, which grows with every takeover.
CREATE TABLE onceward_parts (
    flow     TEXT NOT NULL,
    part     INTEGER NOT NULL,
    owner    TEXT,
    fence    INTEGER NOT NULL DEFAULT 0,
    until    INTEGER,
    -- Consumers: everything up to here is handled.
    position INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (flow, part)
) STRICT, WITHOUT ROWID;

-- The processes that share a flow, to divide the parts evenly.
CREATE TABLE onceward_members (
    flow   TEXT NOT NULL,
    member TEXT NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (flow, member)
) STRICT, WITHOUT ROWID;

-- Who reads the outbox: relays to one broker, or one consumer. Another reader is refused while members of the flow live.
CREATE TABLE onceward_outbox_reader (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    reader TEXT NOT NULL,
    flow   TEXT NOT NULL
) STRICT;

-- In all tables below, `consumer` is the name of the source, `/`, and the name of the consumer: two consumers of the same
-- name over two sources have nothing in common.

-- Messages that have failed and are still tried, and marks of those that may have ended their process.
CREATE TABLE onceward_tries (
    consumer   TEXT NOT NULL,
    message_id TEXT NOT NULL,
    tries      INTEGER NOT NULL DEFAULT 0,
    -- Tries that began with this mark and have not ended: each of them ended with its process.
    started    INTEGER NOT NULL DEFAULT 0,
    error      TEXT NOT NULL DEFAULT '',
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- Messages that were given up, and those that wait behind them. No row is ever removed by itself: it is retried,
-- discarded or settled.
CREATE TABLE onceward_dead_letters (
    -- Within an ordering key: the order in which they arrived.
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    part         INTEGER NOT NULL,
    -- dead: given up; behind: waits behind a dead one of its ordering key; retry: will be tried again
    state        TEXT NOT NULL,
    topic        TEXT NOT NULL,
    ordering_key TEXT,
    headers      TEXT NOT NULL,
    payload      BLOB NOT NULL,
    tries        INTEGER NOT NULL,
    error        TEXT NOT NULL,
    first_at     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    UNIQUE (consumer, message_id)
) STRICT;
CREATE INDEX onceward_dead_letters_order ON onceward_dead_letters (consumer, ordering_key, number);
CREATE INDEX onceward_dead_letters_retry ON onceward_dead_letters (consumer, part, number) WHERE state = 'retry';

-- The ordering keys that have dead letters. No row: clear, messages are handled as they arrive. While there is one,
-- arrivals queue up in onceward_dead_letters.
CREATE TABLE onceward_sequences (
    consumer     TEXT NOT NULL,
    ordering_key TEXT NOT NULL,
    -- parked: nothing is tried; draining: what is queued is handled in its order
    state        TEXT NOT NULL,
    part         INTEGER NOT NULL,
    updated      INTEGER NOT NULL,
    PRIMARY KEY (consumer, ordering_key)
) STRICT, WITHOUT ROWID;

-- The last applied version of each entity.
CREATE TABLE onceward_versions (
    scope   TEXT NOT NULL,
    entity  TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (scope, entity)
) STRICT, WITHOUT ROWID;
