//! The SQL statements for MySQL and MariaDB.

/// The database's clock as a version.
macro_rules! now_us {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    };
}

/// A batch: `[[scope, operation, key, state, due_us, receipt, seen], …]`, text in hexadecimal.
macro_rules! asked {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, scope VARCHAR(510) PATH '$[0]',
    operation VARCHAR(1024) PATH '$[1]', `key` VARCHAR(510) PATH '$[2]', state VARCHAR(16) PATH '$[3]',
    due_us BIGINT PATH '$[4]', receipt LONGTEXT PATH '$[5]', seen BIGINT PATH '$[6]')) AS a"
    };
}

macro_rules! join {
    () => {
        " STRAIGHT_JOIN onceward_receipts r ON r.scope = UNHEX(a.scope) AND r.operation = UNHEX(a.operation)
    AND r.`key` = UNHEX(a.`key`) "
    };
}

/// The columns of a record for a loser, a load or a scan, besides its receipt; times in microseconds.
macro_rules! found {
    () => {
        "r.version, r.state, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), r.due),
    TIMESTAMPDIFF(MICROSECOND, r.created, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, r.updated, UTC_TIMESTAMP(6))"
    };
}

/// Creations: the mark, then the batch. `state` is set last, because the other assignments read it.
pub(super) const CREATE: &str = concat!(
    "INSERT INTO onceward_receipts
    (scope, operation, `key`, state, version, due, created, updated, receipt, writer)
SELECT UNHEX(a.scope), UNHEX(a.operation), UNHEX(a.`key`), a.state, ",
    now_us!(),
    ", UTC_TIMESTAMP(6) + INTERVAL a.due_us MICROSECOND, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6),
    UNHEX(a.receipt), ? FROM ",
    asked!(),
    " ORDER BY a.n
ON DUPLICATE KEY UPDATE
    version = IF(onceward_receipts.state = 'free', GREATEST(onceward_receipts.version + 1, VALUES(version)), onceward_receipts.version),
    due = IF(onceward_receipts.state = 'free', VALUES(due), onceward_receipts.due),
    created = IF(onceward_receipts.state = 'free', VALUES(created), onceward_receipts.created),
    updated = IF(onceward_receipts.state = 'free', VALUES(updated), onceward_receipts.updated),
    receipt = IF(onceward_receipts.state = 'free', VALUES(receipt), onceward_receipts.receipt),
    writer = IF(onceward_receipts.state = 'free', VALUES(writer), onceward_receipts.writer),
    state = IF(onceward_receipts.state = 'free', VALUES(state), onceward_receipts.state)"
);

/// Replacements: the batch, then the mark.
pub(super) const REPLACE: &str = concat!(
    "UPDATE ",
    asked!(),
    join!(),
    "SET r.state = a.state, r.version = GREATEST(r.version + 1, ",
    now_us!(),
    "), r.due = UTC_TIMESTAMP(6) + INTERVAL a.due_us MICROSECOND, r.updated = UTC_TIMESTAMP(6),
    r.receipt = UNHEX(a.receipt), r.writer = ?
WHERE r.version = a.seen AND r.state <> 'free'"
);

/// Removals, which leave the version behind: the batch, the grace in microseconds, the mark.
pub(super) const FREE: &str = concat!(
    "UPDATE ",
    asked!(),
    join!(),
    "SET r.state = 'free', r.version = GREATEST(r.version + 1, ",
    now_us!(),
    "), r.due = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, r.updated = UTC_TIMESTAMP(6), r.receipt = '',
    r.writer = ?
WHERE r.version = a.seen AND r.state <> 'free'"
);

/// What is there now: the mark three times, then the batch. Winners have won, the others get the record.
pub(super) const LOOK: &str = concat!(
    "SELECT a.n, r.writer = ? AS won, ",
    found!(),
    ", IF(r.writer = ?, NULL, r.receipt) FROM ",
    asked!(),
    join!(),
    "WHERE r.writer = ? OR r.state <> 'free'"
);

/// Records by their ids; those that are absent give no row.
pub(super) const LOAD: &str =
    concat!("SELECT a.n, ", found!(), ", r.receipt FROM ", asked!(), join!(), "WHERE r.state <> 'free'");

/// Rows after a position in the order of the index of states: what of, then due twice, scope, key, operation, limit. Only
/// the index is read.
macro_rules! in_state {
    ($of:literal) => {
        concat!(
            "(SELECT r.due, r.scope, r.`key`, r.operation FROM onceward_receipts r FORCE INDEX (onceward_receipts_due)
    WHERE ",
            $of,
            " AND r.due >= '1970-01-01' + INTERVAL ? MICROSECOND
        AND (r.due > '1970-01-01' + INTERVAL ? MICROSECOND OR (r.scope, r.`key`, r.operation) > (?, ?, ?))
    ORDER BY r.due, r.scope, r.`key`, r.operation LIMIT ?)"
        )
    };
}

/// One page of the rows that were found in the index, with their receipts.
macro_rules! page {
    ($rows:expr) => {
        concat!(
            "SELECT r.scope, r.operation, r.`key`, ",
            found!(),
            ", r.receipt, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', f.due) FROM (",
            $rows,
            ") AS f STRAIGHT_JOIN onceward_receipts r
    ON r.scope = f.scope AND r.`key` = f.`key` AND r.operation = f.operation
ORDER BY f.due, f.scope, f.`key`, f.operation"
        )
    };
}

/// How many times a position has to be given to [`SCAN_DUE`].
pub(super) const SCAN_DUE_PLACES: usize = 7;

/// What is due: a position seven times, and the limit. The index is by state and due time, so one lookup for each state
/// reads only what is due; and one for the states of later versions, which this version cannot read.
pub(super) const SCAN_DUE: &str = page!(concat!(
    "SELECT * FROM (",
    in_state!("r.state = 'waiting' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!("r.state = 'held' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!("r.state = 'done' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!("r.state = 'unknown' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!("r.state = 'dead' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!("r.state = 'gone' AND r.due <= UTC_TIMESTAMP(6)"),
    " UNION ALL ",
    in_state!(
        "r.state NOT IN ('waiting', 'held', 'done', 'unknown', 'dead', 'gone', 'free')
        AND r.due <= UTC_TIMESTAMP(6)"
    ),
    ") AS due_now ORDER BY due, scope, `key`, operation LIMIT ?"
));

/// What is due in one state: the state, then a position.
pub(super) const SCAN_DUE_IN_STATE: &str = page!(in_state!("r.state = ? AND r.due <= UTC_TIMESTAMP(6)"));

/// What is in one state and falls due some day: the state, then a position.
pub(super) const SCAN_STATE: &str = page!(in_state!("r.state = ?"));

/// What is in one state and never falls due: the state, scope twice, key, operation, limit.
pub(super) const SCAN_STATE_NEVER: &str = page!(
    "SELECT r.due, r.scope, r.`key`, r.operation FROM onceward_receipts r FORCE INDEX (onceward_receipts_due)
    WHERE r.state = ? AND r.due IS NULL AND r.scope >= ?
        AND (r.scope > ? OR (r.`key`, r.operation) > (?, ?))
    ORDER BY r.scope, r.`key`, r.operation LIMIT ?"
);

/// One page of rows in the order of the primary key.
macro_rules! by_id {
    ($where:literal) => {
        concat!(
            "SELECT r.scope, r.operation, r.`key`, ",
            found!(),
            ", r.receipt, 0 FROM onceward_receipts r WHERE ",
            $where,
            " ORDER BY r.scope, r.`key`, r.operation LIMIT ?"
        )
    };
}

/// Everything after a row: scope twice, key, operation, limit.
pub(super) const SCAN: &str = by_id!("r.scope >= ? AND (r.scope > ? OR (r.`key`, r.operation) > (?, ?))");

/// The same of one scope: scope, key twice, operation, limit.
pub(super) const SCAN_SCOPE: &str =
    by_id!("r.scope = ? AND r.`key` >= ? AND (r.`key` > ? OR r.operation > ?)");

/// The same of one key in a scope, with operations before another: scope, key, operation, the other, limit.
pub(super) const SCAN_KEY: &str =
    by_id!("r.scope = ? AND r.`key` = ? AND r.operation > ? AND r.operation < ?");

/// Removes free rows whose time is over.
pub(super) const PURGE: &str =
    "DELETE FROM onceward_receipts WHERE state = 'free' AND due < UTC_TIMESTAMP(6) ORDER BY due LIMIT ?";

/// One creation inside a transaction: id, state, due, receipt, mark.
pub(super) const CREATE_ONE: &str = concat!(
    "INSERT INTO onceward_receipts
    (scope, operation, `key`, state, version, due, created, updated, receipt, writer)
VALUES (?, ?, ?, ?, ",
    now_us!(),
    ", UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ?, ?)
ON DUPLICATE KEY UPDATE
    version = IF(state = 'free', GREATEST(version + 1, VALUES(version)), version),
    due = IF(state = 'free', VALUES(due), due), created = IF(state = 'free', VALUES(created), created),
    updated = IF(state = 'free', VALUES(updated), updated),
    receipt = IF(state = 'free', VALUES(receipt), receipt),
    writer = IF(state = 'free', VALUES(writer), writer), state = IF(state = 'free', VALUES(state), state)"
);

/// One replacement inside a transaction: state, due, receipt, mark, id, version.
pub(super) const REPLACE_ONE: &str = concat!(
    "UPDATE onceward_receipts SET state = ?, version = GREATEST(version + 1, ",
    now_us!(),
    "), due = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, updated = UTC_TIMESTAMP(6), receipt = ?, writer = ?
WHERE scope = ? AND operation = ? AND `key` = ? AND version = ? AND state <> 'free'"
);

/// A record inside a transaction, with whether this mark wrote it: mark, id.
pub(super) const LOAD_ONE: &str = concat!(
    "SELECT ",
    found!(),
    ", r.receipt, r.writer = ? FROM onceward_receipts r
WHERE r.scope = ? AND r.operation = ? AND r.`key` = ? FOR UPDATE"
);
