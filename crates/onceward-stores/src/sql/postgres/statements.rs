//! Every statement of this dialect, written once: of the store, and of receipts that ride in a
//! transaction of the caller's own.
//!
//! A swap's statement gives one row for each winner (`won` is its new version) and one for each loser
//! that was there when the statement began. Who is neither has to look again: the record came, went or
//! moved while the statement ran.

/// The database's clock as a version.
macro_rules! now_us {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}

/// Where everybody has won, nobody needs to be looked for.
macro_rules! somebody_lost {
    () => {
        "(SELECT count(*) FROM won) < cardinality($1::text[])"
    };
}

/// What a loser, a load or a scan wants to know of a record.
macro_rules! found {
    () => {
        "r.version, r.state, (extract(epoch FROM r.due - clock_timestamp()) * 1000000)::bigint AS remaining_us, r.receipt"
    };
}

/// The same columns for a winner, who knows them.
macro_rules! nothing_found {
    () => {
        "NULL::bigint, NULL::text, NULL::bigint, NULL::bytea"
    };
}

macro_rules! same_id {
    () => {
        "r.scope = a.scope AND r.operation = a.operation AND r.key = a.key"
    };
}

/// Creations. The winners are known by their columns, in the order of the batch.
pub(super) const CREATE: &str = concat!(
    "WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[])
        WITH ORDINALITY AS a (scope, operation, key, state, due_us, receipt, n)
), won AS (
    INSERT INTO onceward_receipts AS r
        (scope, operation, key, state, version, due, created, updated, receipt)
    SELECT scope, operation, key, state, greatest(",
    now_us!(),
    ", $7::bigint + 1), clock_timestamp() + due_us * interval '1 microsecond', clock_timestamp(),
        clock_timestamp(), receipt
    FROM asked
    ON CONFLICT (scope, operation, key) DO UPDATE SET state = excluded.state,
        version = greatest(r.version + 1, excluded.version), due = excluded.due, created = excluded.created,
        updated = excluded.updated, receipt = excluded.receipt
    WHERE r.state = 'free'
    RETURNING r.scope, r.operation, r.key, r.version
)
SELECT NULL::bigint AS n, scope, operation, key, version AS won, ",
    nothing_found!(),
    " FROM won
UNION ALL
SELECT a.n, NULL, NULL, NULL, NULL::bigint, ",
    found!(),
    " FROM asked a JOIN onceward_receipts r ON ",
    same_id!(),
    " WHERE r.state <> 'free' AND ",
    somebody_lost!()
);

/// The winners' and losers' rows of a statement whose `won` knows their number.
macro_rules! numbered {
    () => {
        concat!(
            " SELECT n, NULL, NULL, NULL, version AS won, ",
            nothing_found!(),
            " FROM won
UNION ALL
SELECT a.n, NULL, NULL, NULL, NULL::bigint, ",
            found!(),
            " FROM asked a JOIN onceward_receipts r ON ",
            same_id!(),
            " WHERE r.state <> 'free' AND r.version <> a.seen AND ",
            somebody_lost!()
        )
    };
}

/// Replacements.
pub(super) const REPLACE: &str = concat!(
    "WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $8::bigint[])
        WITH ORDINALITY AS a (scope, operation, key, state, due_us, receipt, seen, n)
), won AS (
    UPDATE onceward_receipts r SET state = a.state, version = greatest(r.version + 1, ",
    now_us!(),
    ", $7::bigint + 1), due = clock_timestamp() + a.due_us * interval '1 microsecond',
        updated = clock_timestamp(), receipt = a.receipt
    FROM asked a WHERE ",
    same_id!(),
    " AND r.version = a.seen AND r.state <> 'free'
    RETURNING a.n, r.version
)",
    numbered!()
);

/// Removals that leave the version behind for a while ($6, in microseconds).
pub(super) const FREE: &str = concat!(
    "WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS a (scope, operation, key, seen, n)
), won AS (
    UPDATE onceward_receipts r SET state = 'free', version = greatest(r.version + 1, ",
    now_us!(),
    ", $5::bigint + 1), due = clock_timestamp() + $6::bigint * interval '1 microsecond',
        updated = clock_timestamp(), receipt = ''
    FROM asked a WHERE ",
    same_id!(),
    " AND r.version = a.seen AND r.state <> 'free'
    RETURNING a.n, r.version
)",
    numbered!()
);

/// Removals of records so old that nothing has to be left behind.
pub(super) const DELETE: &str = concat!(
    "WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS a (scope, operation, key, seen, n)
), won AS (
    DELETE FROM onceward_receipts r USING asked a WHERE ",
    same_id!(),
    " AND r.version = a.seen AND r.state <> 'free'
    RETURNING a.n, greatest(r.version + 1, ",
    now_us!(),
    ") AS version
)",
    numbered!()
);

/// Records by their ids; those that are absent give no row.
pub(super) const LOAD: &str = concat!(
    "SELECT a.n, NULL::text, NULL::text, NULL::text, NULL::bigint AS won, ",
    found!(),
    " FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (scope, operation, key, n)
    JOIN onceward_receipts r ON ",
    same_id!(),
    " WHERE r.state <> 'free'"
);

/// One page of a scan: the rows that are looked at ($1 at most), each with whether it is wanted, how
/// many bytes come before it, and how many rows there are in all.
macro_rules! page {
    ($wanted:literal, $rows:expr, $order:literal) => {
        concat!(
            "SELECT r.scope, r.operation, r.key, (extract(epoch FROM r.due) * 1000000)::bigint AS due_at_us,
    r.wanted, r.total, ",
            found!(),
            " FROM (SELECT *, count(*) OVER () AS total,
        sum(CASE WHEN wanted THEN octet_length(receipt) ELSE 0 END) OVER (ORDER BY ",
            $order,
            ") - CASE WHEN wanted THEN octet_length(receipt) ELSE 0 END AS bytes_before
    FROM (SELECT *, (",
            $wanted,
            ") AS wanted FROM ",
            $rows,
            " ORDER BY ",
            $order,
            " LIMIT $1) looked_at) r
WHERE bytes_before < $2 ORDER BY ",
            $order
        )
    };
}

/// What is due behind a place ($3 to $6), and of some ids ($11 to $13) those that are due before it and
/// behind another ($7 to $10). The time is the statement's: the clock itself is no bound for an index, and
/// everything that is kept would be looked at.
pub(super) const SCAN_DUE: &str = page!(
    "true",
    concat!(
        "((SELECT * FROM onceward_receipts
        WHERE due <= statement_timestamp() AND (due, scope, operation, key) > ($3, $4, $5, $6)
            AND state <> 'free' AND due IS NOT NULL
        ORDER BY due, scope, operation, key LIMIT $1)
    UNION ALL
    (SELECT r.* FROM unnest($11::text[], $12::text[], $13::text[]) AS a (scope, operation, key)
        JOIN onceward_receipts r ON ",
        same_id!(),
        " WHERE r.due <= statement_timestamp() AND r.state <> 'free'
            AND (r.due, r.scope, r.operation, r.key) > ($7, $8, $9, $10)
            AND (r.due, r.scope, r.operation, r.key) <= ($3, $4, $5, $6))) due_now"
    ),
    "due, scope, operation, key"
);

/// Everything that matches scope $3, operation $4 and state $5, behind the row ($6, $7, $8).
pub(super) const SCAN_ALL: &str = page!(
    "state <> 'free' AND ($3::text IS NULL OR scope = $3) AND ($4::text IS NULL OR operation = $4)
        AND ($5::text IS NULL OR state = $5)",
    "onceward_receipts WHERE (scope, operation, key) > ($6, $7, $8)",
    "scope, operation, key"
);
pub(super) const SCAN_SCOPE: &str = page!(
    "state <> 'free' AND ($4::text IS NULL OR operation = $4) AND ($5::text IS NULL OR state = $5)",
    "onceward_receipts WHERE scope = $3 AND (scope, operation, key) > ($6, $7, $8)",
    "scope, operation, key"
);
pub(super) const SCAN_OPERATION: &str = page!(
    "state <> 'free' AND ($5::text IS NULL OR state = $5)",
    "onceward_receipts WHERE scope = $3 AND operation = $4 AND (scope, operation, key) > ($6, $7, $8)",
    "scope, operation, key"
);

/// Removes free rows whose time is over ($1 at most, from $2 on), but none that somebody is about to claim.
/// Says what the clock says, and up to where it came.
pub(super) const PURGE: &str = concat!(
    "WITH removed AS (DELETE FROM onceward_receipts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM onceward_receipts WHERE state = 'free' AND due < statement_timestamp() AND due >= $2
    ORDER BY due LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING due)
SELECT ",
    now_us!(),
    ", (extract(epoch FROM max(due)) * 1000000)::bigint FROM removed"
);

/// One creation, by itself or inside a transaction; no row if it lost. Waits for other transactions on the same id.
pub(super) const CREATE_ONE: &str = concat!(
    "INSERT INTO onceward_receipts AS r (scope, operation, key, state, version, due, created, updated, receipt)
VALUES ($1, $2, $3, $4, greatest(",
    now_us!(),
    ", $7::bigint + 1), clock_timestamp() + $5::bigint * interval '1 microsecond', clock_timestamp(), clock_timestamp(), $6)
ON CONFLICT (scope, operation, key) DO UPDATE SET state = excluded.state,
    version = greatest(r.version + 1, excluded.version), due = excluded.due, created = excluded.created,
    updated = excluded.updated, receipt = excluded.receipt
WHERE r.state = 'free'
RETURNING r.version"
);

/// A replacement inside a transaction; no row if it lost.
macro_rules! replace_one {
    () => {
        concat!(
            "UPDATE onceward_receipts r SET state = $4, version = greatest(r.version + 1, ",
            now_us!(),
            "), due = clock_timestamp() + $5::bigint * interval '1 microsecond', updated = clock_timestamp(),
    receipt = $6
WHERE r.scope = $1 AND r.operation = $2 AND r.key = $3 AND r.version = $7 AND r.state <> 'free'
RETURNING r.version"
        )
    };
}
pub(super) const REPLACE_ONE: &str = replace_one!();

/// The same as the last deed before a commit that is already on its way: if it loses, it fails, and the
/// commit with it.
pub(super) const COMPLETE_ONE: &str =
    concat!("WITH won AS (", replace_one!(), ") SELECT max(version), 1 / count(*) FROM won");

/// A removal inside a transaction; no row if it lost.
pub(super) const FREE_ONE: &str = concat!(
    "UPDATE onceward_receipts r SET state = 'free', version = greatest(r.version + 1, ",
    now_us!(),
    "), due = clock_timestamp() + $5::bigint * interval '1 microsecond', updated = clock_timestamp(),
    receipt = ''
WHERE r.scope = $1 AND r.operation = $2 AND r.key = $3 AND r.version = $4 AND r.state <> 'free'
RETURNING r.version"
);

pub(super) const LOAD_ONE: &str = concat!(
    "SELECT ",
    found!(),
    " FROM onceward_receipts r WHERE r.scope = $1 AND r.operation = $2 AND r.key = $3 AND r.state <> 'free'"
);
