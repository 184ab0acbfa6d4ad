//! What runs inside a transaction of the user, in MySQL and MariaDB. Locks only what it must: the fence in shared mode, and
//! rows that are there. What is in a subquery is read as it was committed.

use crate::statements::{Statement, Statements};

const fn takes(text: &'static str, takes: &'static [usize]) -> Statement {
    Statement { text, takes }
}

pub(crate) const STATEMENTS: Statements = Statements {
    admit: takes(
        "SELECT f.fence,
            COALESCE((SELECT s.state FROM onceward_sequences s WHERE s.consumer = ? AND s.ordering_key = ?), ''),
            EXISTS (SELECT 1 FROM onceward_dead_letters d WHERE d.consumer = ? AND d.message_id = ?),
            COALESCE((SELECT t.tries FROM onceward_tries t WHERE t.consumer = ? AND t.message_id = ?), -1)
        FROM onceward_fences f WHERE f.flow = ? AND f.part = ? LOCK IN SHARE MODE",
        &[2, 3, 2, 4, 2, 4, 0, 1],
    ),
    // In hexadecimal, so that no character set of the connection or of the database has a say.
    admits_in_hex: true,
    admit_all: takes(
        "SELECT f.fence, COALESCE((
            SELECT CAST(BIT_OR(1 << (m.n - 1)) AS SIGNED)
            FROM JSON_TABLE(?, '$[*]' COLUMNS (
                n FOR ORDINALITY, k VARCHAR(600) PATH '$[0]', id VARCHAR(600) PATH '$[1]')) AS m
            WHERE EXISTS (SELECT 1 FROM onceward_sequences s WHERE s.consumer = ? AND s.ordering_key = UNHEX(m.k))
                OR EXISTS (SELECT 1 FROM onceward_dead_letters d WHERE d.consumer = ? AND d.message_id = UNHEX(m.id))
                OR EXISTS (SELECT 1 FROM onceward_tries t WHERE t.consumer = ? AND t.message_id = UNHEX(m.id))), 0)
        FROM onceward_fences f WHERE f.flow = ? AND f.part = ? LOCK IN SHARE MODE",
        &[4, 2, 2, 2, 0, 1],
    ),
    lock_sequence: takes(
        "SELECT state FROM onceward_sequences WHERE consumer = ? AND ordering_key = ? FOR UPDATE",
        &[0, 1],
    ),
    first: takes("SELECT MIN(number) FROM onceward_dead_letters WHERE consumer = ? AND ordering_key = ?", &[0, 1]),
    lock_alone: takes(
        "SELECT number FROM onceward_dead_letters WHERE consumer = ? AND message_id = ? AND state = 'retry' FOR UPDATE",
        &[0, 1],
    ),
    remove: takes("DELETE FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?", &[0, 1]),
    clear: takes(
        "DELETE FROM onceward_sequences WHERE consumer = ? AND ordering_key = ? AND NOT EXISTS (
            SELECT 1 FROM onceward_dead_letters d WHERE d.consumer = ? AND d.ordering_key = ?)",
        &[0, 1, 0, 1],
    ),
    forget_tries: takes("DELETE FROM onceward_tries WHERE consumer = ? AND message_id = ?", &[0, 1]),
    find_version: takes("SELECT version FROM onceward_versions WHERE scope = ? AND entity = ? FOR UPDATE", &[0, 1]),
    begin_version: takes(
        "INSERT IGNORE INTO onceward_versions (scope, entity, version, updated) VALUES (?, ?, 0, UTC_TIMESTAMP(6))",
        &[0, 1],
    ),
    set_version: takes(
        "UPDATE onceward_versions SET version = ?, updated = UTC_TIMESTAMP(6) WHERE scope = ? AND entity = ?",
        &[2, 0, 1],
    ),
};
