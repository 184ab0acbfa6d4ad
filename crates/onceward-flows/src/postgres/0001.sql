-- Messages that were committed and are not yet published. Written inside the transactions of the user, read and removed
-- by relays.
CREATE TABLE onceward_outbox (
    -- The ordering key as one of 1,024 numbers. The writers of a lane hold an advisory lock from before they draw the
    -- position until they have committed, so that within a lane positions are in the order of the commits.
    lane         int NOT NULL,
    -- The sequence must not cache numbers per session (CACHE 1, the default): relays check it.
    position     bigint GENERATED ALWAYS AS IDENTITY,
    id           text COLLATE "C" NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    ordering_key text COLLATE "C",
    headers      text COLLATE "C" NOT NULL,
    payload      bytea NOT NULL,
    created      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane, position)
) WITH (
    -- Every row is written once and removed once. The dead ones are to go while they are few.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- Who works on which part of a flow: relays on groups of lanes, consumers on partitions. A part is worked on under a
-- lease (`until`) and a fence, which grows with every takeover.
CREATE TABLE onceward_parts (
    flow     text COLLATE "C" NOT NULL,
    part     int NOT NULL,
    owner    text COLLATE "C",
    fence    bigint NOT NULL DEFAULT 0,
    until    timestamptz,
    -- Consumers: everything up to here is handled.
    position bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (flow, part)
) WITH (fillfactor = 50);

-- The processes that share a flow, to divide the parts evenly.
CREATE TABLE onceward_members (
    flow   text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (flow, member)
);

-- Who reads the outbox: relays to one broker, or one consumer. Another reader is refused while members of the flow live.
CREATE TABLE onceward_outbox_reader (
    id     int PRIMARY KEY CHECK (id = 1),
    reader text COLLATE "C" NOT NULL,
    flow   text COLLATE "C" NOT NULL
);

-- In all tables below, `consumer` is the name of the source, `/`, and the name of the consumer: two consumers of the same
-- name over two sources have nothing in common.

-- Messages that have failed and are still tried, and marks of those that may have ended their process.
CREATE TABLE onceward_tries (
    consumer   text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    tries      int NOT NULL DEFAULT 0,
    -- Tries that began with this mark and have not ended: each of them ended with its process.
    started    int NOT NULL DEFAULT 0,
    error      text NOT NULL DEFAULT '',
    first_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);

-- Messages that were given up, and those that wait behind them. No row is ever removed by itself: it is retried,
-- discarded or settled.
CREATE TABLE onceward_dead_letters (
    consumer     text COLLATE "C" NOT NULL,
    message_id   text COLLATE "C" NOT NULL,
    -- Within an ordering key: the order in which they arrived.
    number       bigint GENERATED ALWAYS AS IDENTITY,
    part         int NOT NULL,
    -- dead: given up; behind: waits behind a dead one of its ordering key; retry: will be tried again
    state        text COLLATE "C" NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    ordering_key text COLLATE "C",
    headers      text COLLATE "C" NOT NULL,
    payload      bytea NOT NULL,
    tries        int NOT NULL,
    error        text NOT NULL,
    first_at     timestamptz NOT NULL,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX onceward_dead_letters_order ON onceward_dead_letters (consumer, ordering_key, number);
CREATE INDEX onceward_dead_letters_retry ON onceward_dead_letters (consumer, part, number) WHERE state = 'retry';

-- The ordering keys that have dead letters. No row: clear, messages are handled as they arrive. While there is one,
-- arrivals queue up in onceward_dead_letters.
CREATE TABLE onceward_sequences (
    consumer     text COLLATE "C" NOT NULL,
    ordering_key text COLLATE "C" NOT NULL,
    -- parked: nothing is tried; draining: what is queued is handled in its order
    state        text COLLATE "C" NOT NULL,
    part         int NOT NULL,
    updated      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, ordering_key)
);
CREATE INDEX onceward_sequences_draining ON onceward_sequences (consumer, part) WHERE state = 'draining';

-- The last applied version of each entity.
CREATE TABLE onceward_versions (
    scope   text COLLATE "C" NOT NULL,
    entity  text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    updated timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, entity)
);

COMMENT ON TABLE onceward_outbox IS 'Messages to be published; kept by onceward. Look, but do not write.';
COMMENT ON TABLE onceward_dead_letters IS 'Messages that were given up; kept by onceward. Use `onceward dead`.';
