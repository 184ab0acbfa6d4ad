//! The SQL statements of scans.
//!
//! A page is made of the rows that are read, $1 at most, in order. It ends where $2 of them are wanted, or where
//! the receipts of those are $3 bytes. The answer has the rows that are wanted and the last one that was read, each
//! with how many rows there were to read (`total`), and whether it ends with the last of them (`all_of_them`).

use super::statements::{each_by_id, found, now_us, same_id, same_texts};

macro_rules! page {
    ($wanted:expr, $rows:expr, $order:literal) => {
        concat!(
            "SELECT r.scope, r.operation, r.key, r.id_high, r.id_middle, r.id_low,
    (extract(epoch FROM r.due) * 1000000)::bigint AS due_at_us, r.wanted, r.reached = r.total AS all_of_them, r.total, ",
            found!(),
            " FROM (SELECT *, max(n) OVER () AS reached
    FROM (SELECT *, count(*) OVER () AS total, row_number() OVER page AS n,
            count(*) FILTER (WHERE wanted) OVER before AS wanted_before,
            sum(octet_length(receipt)) FILTER (WHERE wanted) OVER before AS bytes_before
        FROM (SELECT *, (",
            $wanted,
            ") AS wanted FROM ",
            $rows,
            " ORDER BY ",
            $order,
            " LIMIT $1) looked_at
        WINDOW page AS (ORDER BY ",
            $order,
            "), before AS (page ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) counted
    WHERE wanted_before < $2 AND coalesce(bytes_before, 0) < $3) r
WHERE wanted OR n = reached ORDER BY ",
            $order
        )
    };
}

/// What is due under one number of `open_state`, after a position ($4 to $7). The time is the statement's: the clock itself
/// is no bound for an index, and all stored rows would be read.
macro_rules! due_under {
    ($number:literal) => {
        concat!(
            "(SELECT * FROM onceward_receipts
        WHERE open_state = ",
            $number,
            " AND due <= statement_timestamp() AND (due, id_high, id_middle, id_low) > ($4, $5, $6, $7)
            AND state <> 'free'
        ORDER BY due, id_high, id_middle, id_low LIMIT $1)"
        )
    };
}

/// Of some ids ($12 to $17), those that are due before that position and after another ($8 to $11).
macro_rules! due_of_kept {
    ($which:literal) => {
        concat!(
            "(SELECT r.* FROM ",
            each_by_id!("$12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[]"),
            " WHERE r.due <= statement_timestamp() AND r.state <> 'free'",
            $which,
            "
            AND (r.due, r.id_high, r.id_middle, r.id_low) > ($8, $9, $10, $11)
            AND (r.due, r.id_high, r.id_middle, r.id_low) <= ($4, $5, $6, $7))"
        )
    };
}

/// What is due.
pub(super) const SCAN_DUE: &str = page!(
    "true",
    concat!(
        "(",
        due_under!("1"),
        " UNION ALL ",
        due_under!("2"),
        " UNION ALL ",
        due_under!("3"),
        " UNION ALL ",
        due_under!("4"),
        " UNION ALL ",
        due_under!("5"),
        " UNION ALL ",
        due_of_kept!(""),
        ") due_now"
    ),
    "due, id_high, id_middle, id_low"
);

/// The same in the state $19, whose number is $18. (Under the last number there are others as well.)
pub(super) const SCAN_DUE_IN_STATE: &str = page!(
    "state = $19",
    concat!("(", due_under!("$18"), " UNION ALL ", due_of_kept!(" AND r.open_state = $18"), ") due_now"),
    "due, id_high, id_middle, id_low"
);

/// Locks what is due in the state $3, whose number is $2, from the due time $4 on: $1 rows at most, about the earliest.
/// Rows that other transactions have locked are passed over.
pub(super) const TAKE: &str = concat!(
    "SELECT r.scope, r.operation, r.key, (date_part('epoch', r.due) * 1000000)::bigint AS due_at_us, r.ctid AS place, ",
    found!(),
    " FROM onceward_receipts r
WHERE r.open_state = $2 AND r.due <= statement_timestamp() AND r.due >= $4 AND r.state = $3
ORDER BY r.due LIMIT $1 FOR UPDATE SKIP LOCKED"
);

/// The server's clock.
pub(super) const CLOCK: &str = concat!("SELECT ", now_us!());

/// What a filter wants: scope $4, operation $5, operations that begin like $6, key $7, state $8.
macro_rules! wanted {
    () => {
        "state <> 'free' AND ($4::text IS NULL OR scope = $4) AND ($5::text IS NULL OR operation = $5)
        AND ($6::text IS NULL OR starts_with(operation, $6)) AND ($7::text IS NULL OR key = $7)
        AND ($8::text IS NULL OR state = $8)"
    };
}

/// Everything after the row ($9, $10, $11) with an `id_high` up to $12, in the order of the primary key.
pub(super) const SCAN_IDS: &str = page!(
    wanted!(),
    "onceward_receipts WHERE (id_high, id_middle, id_low) > ($9, $10, $11) AND id_high <= $12",
    "id_high, id_middle, id_low"
);

/// What is under the number $9 and falls due, after a position ($10 to $13), in the order of due times.
pub(super) const SCAN_STATE: &str = page!(
    wanted!(),
    "onceward_receipts WHERE open_state = $9 AND due IS NOT NULL
        AND (due, id_high, id_middle, id_low) > ($10, $11, $12, $13)",
    "due, id_high, id_middle, id_low"
);

/// What is under the number $9 and never falls due, after the row ($10, $11, $12).
pub(super) const SCAN_STATE_NEVER: &str = page!(
    wanted!(),
    "onceward_receipts WHERE open_state = $9 AND open_state < 5 AND due IS NULL
        AND (id_high, id_middle, id_low) > ($10, $11, $12)",
    "id_high, id_middle, id_low"
);

/// Reads due rows ($1 at most, from $2 on), and removes the free rows among them, but none that another transaction
/// is claiming. Returns the clock, the last due time that was read, and the number of rows read. (The sum with
/// nothing keeps the planner from searching by due time for rows whose ctid is known.)
pub(super) const PURGE: &str = concat!(
    "WITH looked_at AS (
    SELECT ctid, state, due FROM onceward_receipts
    WHERE open_state = 5 AND due < statement_timestamp() AND due >= $2
    ORDER BY due LIMIT $1
), removed AS (
    DELETE FROM onceward_receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM onceward_receipts
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM looked_at WHERE state = 'free'))
            AND state = 'free' AND due + interval '0' < statement_timestamp()
        FOR UPDATE SKIP LOCKED))
)
SELECT ",
    now_us!(),
    ", (extract(epoch FROM max(due)) * 1000000)::bigint, count(*) FROM looked_at"
);
