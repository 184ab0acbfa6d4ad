//! Every statement of this dialect, written once.

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

macro_rules! remaining_us {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), r.due)"
    };
}

/// Creations: the mark, then the batch. `state` is set last, because the others ask for it.
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
    "SELECT a.n, r.writer = ? AS won, r.version, r.state, ",
    remaining_us!(),
    ", IF(r.writer = ?, NULL, r.receipt) FROM ",
    asked!(),
    join!(),
    "WHERE r.writer = ? OR r.state <> 'free'"
);

/// Records by their ids; those that are absent give no row.
pub(super) const LOAD: &str = concat!(
    "SELECT a.n, r.version, r.state, ",
    remaining_us!(),
    ", r.receipt FROM ",
    asked!(),
    join!(),
    "WHERE r.state <> 'free'"
);

/// What is due in one state behind a row, in the order of the index: due, twice, then the id and the limit.
macro_rules! due_in {
    ($state:literal) => {
        concat!(
            "(SELECT r.due, r.scope, r.operation, r.`key`, r.version, r.state, ",
            remaining_us!(),
            " AS remaining_us, r.receipt
    FROM onceward_receipts r FORCE INDEX (onceward_receipts_due)
    WHERE r.state = '",
            $state,
            "' AND r.due <= UTC_TIMESTAMP(6) AND r.due >= '1970-01-01' + INTERVAL ? MICROSECOND
        AND (r.due > '1970-01-01' + INTERVAL ? MICROSECOND OR (r.scope, r.operation, r.`key`) > (?, ?, ?))
    ORDER BY r.due, r.scope, r.operation, r.`key` LIMIT ?)"
        )
    };
}

/// One page of what is due: what each state wants, four times, and the limit. The index is by state and due,
/// so one look for each state reads only what is due.
pub(super) const SCAN_DUE: &str = concat!(
    "SELECT scope, operation, `key`, version, state, remaining_us, receipt,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due) FROM (",
    due_in!("held"),
    " UNION ALL ",
    due_in!("done"),
    " UNION ALL ",
    due_in!("unknown"),
    " UNION ALL ",
    due_in!("gone"),
    ") AS found ORDER BY due, scope, operation, `key` LIMIT ?"
);

/// One page of everything behind a row.
pub(super) const SCAN: &str = concat!(
    "SELECT r.scope, r.operation, r.`key`, r.version, r.state, ",
    remaining_us!(),
    ", r.receipt, 0
FROM onceward_receipts r WHERE r.scope >= ? AND (r.scope > ? OR (r.operation, r.`key`) > (?, ?))
ORDER BY r.scope, r.operation, r.`key` LIMIT ?"
);

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
    "SELECT r.version, r.state, ",
    remaining_us!(),
    ", r.receipt, r.writer = ? FROM onceward_receipts r
WHERE r.scope = ? AND r.operation = ? AND r.`key` = ? FOR UPDATE"
);
