//! What runs inside a transaction of the user, in PostgreSQL.

use crate::statements::{Statement, Statements};

pub(crate) const STATEMENTS: Statements = Statements {
    admit: Statement::new(
        "SELECT p.fence, coalesce(s.state, ''), (d.message_id IS NOT NULL)::int, coalesce(t.tries, -1)
        FROM onceward_parts AS p
        LEFT JOIN onceward_sequences AS s ON s.consumer = $3 AND s.ordering_key = $4
        LEFT JOIN onceward_dead_letters AS d ON d.consumer = $3 AND d.message_id = $5
        LEFT JOIN onceward_tries AS t ON t.consumer = $3 AND t.message_id = $5
        WHERE p.flow = $1 AND p.part = $2::bigint FOR KEY SHARE OF p",
    ),
    admits_in_hex: false,
    admit_all: Statement {
        text: "SELECT p.fence, coalesce((
            SELECT bit_or(1::bigint << (m.n - 1)::int)
            FROM json_array_elements($4::text::json) WITH ORDINALITY AS m (entry, n)
            WHERE EXISTS (SELECT 1 FROM onceward_sequences AS s
                    WHERE s.consumer = $3 AND s.ordering_key = m.entry ->> 0)
                OR EXISTS (SELECT 1 FROM onceward_dead_letters AS d
                    WHERE d.consumer = $3 AND d.message_id = m.entry ->> 1)
                OR EXISTS (SELECT 1 FROM onceward_tries AS t
                    WHERE t.consumer = $3 AND t.message_id = m.entry ->> 1)), 0)
        FROM onceward_parts AS p
        WHERE p.flow = $1 AND p.part = $2::bigint FOR KEY SHARE OF p",
        takes: &[0, 1, 2, 3],
    },
    lock_sequence: Statement::new(
        "SELECT state FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 FOR UPDATE",
    ),
    first: Statement::new(
        "SELECT min(number) FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2",
    ),
    lock_alone: Statement::new(
        "SELECT number FROM onceward_dead_letters
        WHERE consumer = $1 AND message_id = $2 AND state = 'retry' FOR UPDATE",
    ),
    remove: Statement::new("DELETE FROM onceward_dead_letters WHERE consumer = $1 AND message_id = $2"),
    clear: Statement::new(
        "DELETE FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 AND NOT EXISTS (
            SELECT 1 FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2)",
    ),
    forget_tries: Statement::new("DELETE FROM onceward_tries WHERE consumer = $1 AND message_id = $2"),
    find_version: Statement::new(
        "SELECT version FROM onceward_versions WHERE scope = $1 AND entity = $2 FOR UPDATE",
    ),
    begin_version: Statement::new(
        "INSERT INTO onceward_versions (scope, entity, version) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING",
    ),
    set_version: Statement::new(
        "UPDATE onceward_versions SET version = $3, updated = clock_timestamp() WHERE scope = $1 AND entity = $2",
    ),
};
