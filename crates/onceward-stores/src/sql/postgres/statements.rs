//! Every statement that writes or loads: those of the store, and those of receipts in a transaction of the
//! caller. Scans are in `scan_statements.rs`.
//!
//! A swap's statement gives one row for all where all have won, with the same version. Otherwise it gives one row
//! for each winner (`won` is its new version) and one for each loser that was there when the statement
//! began. A swap with no row must load again: its record was created, removed or moved while the statement ran.
//!
//! A record is found by the numbers of its id (`digest.rs`). A swap that has seen no version compares the texts of the
//! id as well; a version that was seen can only be that of the right record.
//!
//! **Price.** Executing a prepared statement begins with setting it up, and for one row that is most of
//! it: each expression, constraint and condition of an index is paid for every time. So single rows have
//! statements of their own, with as little in them as possible.

/// The database's clock when the statement began, as a version. Microseconds since 1970 fit a float.
macro_rules! now_us {
    () => {
        "(date_part('epoch', statement_timestamp()) * 1000000)::bigint"
    };
}

/// This many microseconds after the statement began.
macro_rules! due_in {
    ($us:literal) => {
        concat!("statement_timestamp() + ", $us, " * interval '1 microsecond'")
    };
}

/// Skips the search for losers if all have won.
macro_rules! somebody_lost {
    () => {
        "(SELECT winners < cardinality($1::bigint[]) FROM tally)"
    };
}

/// How many have won, and whether one version tells it all.
macro_rules! tally {
    () => {
        ", tally AS (
    SELECT count(*) AS winners, max(version) AS version,
        count(*) = cardinality($1::bigint[]) AND min(version) = max(version) AS alike
    FROM won
)"
    };
}

/// The columns of a record for a loser, a load or a scan; times in microseconds. (`date_part` gives a float, which is
/// exact here; `extract` a `numeric`, which takes many times as long.)
macro_rules! found {
    () => {
        "r.version, r.state, (date_part('epoch', r.due - clock_timestamp()) * 1000000)::bigint AS remaining_us,
    (date_part('epoch', clock_timestamp() - r.created) * 1000000)::bigint AS created_us,
    (date_part('epoch', clock_timestamp() - r.updated) * 1000000)::bigint AS updated_us, r.receipt"
    };
}

/// The same columns for a winner, which needs no values.
macro_rules! nothing_found {
    () => {
        "NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea"
    };
}

/// By its numbers.
macro_rules! same_id {
    () => {
        "r.id_high = a.id_high AND r.id_middle = a.id_middle AND r.id_low = a.id_low"
    };
}

/// Always true, and considered rare by the planner: so it looks up each id in the primary key, even where it
/// believes that the table is nearly empty and a full scan would do.
macro_rules! few {
    () => {
        "a.n = a.n + 0"
    };
}

macro_rules! not_free {
    () => {
        "r.state <> 'free'"
    };
}

/// By its texts, compared with those of another.
macro_rules! same_texts {
    ($of:literal) => {
        concat!("r.scope = ", $of, ".scope AND r.operation = ", $of, ".operation AND r.key = ", $of, ".key")
    };
}

/// Each id looked up by itself, whatever else is asked of the record.
macro_rules! each_by_id {
    ($ids:literal) => {
        concat!(
            "unnest(",
            $ids,
            ") WITH ORDINALITY AS a (id_high, id_middle, id_low, scope, operation, key, n)
    CROSS JOIN LATERAL (SELECT * FROM onceward_receipts r WHERE ",
            same_id!(),
            " AND ",
            same_texts!("a"),
            " OFFSET 0) r"
        )
    };
}

/// The first row of the answer, where it is the only one; with what is asked for besides.
macro_rules! all_alike {
    ($besides:literal) => {
        concat!(
            " SELECT NULL::bigint AS n, NULL::bigint AS id_high, NULL::bigint AS id_middle, NULL::bigint AS id_low,
    version AS won, ",
            nothing_found!(),
            $besides,
            " FROM tally WHERE alike
UNION ALL
"
        )
    };
}

/// What a creation does if it finds the free row of its own id.
macro_rules! take_free_place {
    () => {
        concat!(
            "UPDATE SET state = excluded.state, open_state = excluded.open_state,
        version = greatest(r.version + 1, excluded.version), due = excluded.due,
        created = excluded.created, updated = excluded.updated, receipt = excluded.receipt
    WHERE r.state = 'free' AND ",
            same_texts!("excluded")
        )
    };
}

/// Creations. The winners are known by their numbers, in the order of the batch. The last column says where
/// their rows are.
pub(super) const CREATE: &str = concat!(
    "WITH won AS (
    INSERT INTO onceward_receipts AS r
        (id_high, id_middle, id_low, scope, operation, key, state, open_state, version, due, created, updated, receipt)
    SELECT id_high, id_middle, id_low, scope, operation, key, state, open_state, (SELECT greatest(",
    now_us!(),
    ", $10::bigint + 1)), ",
    due_in!("due_us"),
    ", statement_timestamp(), statement_timestamp(), receipt
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::bytea[], $11::bigint[])
        AS a (id_high, id_middle, id_low, scope, operation, key, state, due_us, receipt, open_state)
    ON CONFLICT (id_high, id_middle, id_low) DO ",
    take_free_place!(),
    " RETURNING r.id_high, r.id_middle, r.id_low, r.version, r.ctid AS place
)",
    tally!(),
    all_alike!(", (SELECT array_agg(place) FROM won) AS places"),
    "SELECT NULL, id_high, id_middle, id_low, version, ",
    nothing_found!(),
    ", ARRAY[place] FROM won WHERE NOT (SELECT alike FROM tally)
UNION ALL
SELECT a.n, NULL, NULL, NULL, NULL, ",
    found!(),
    ", NULL FROM ",
    each_by_id!("$1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[]"),
    " WHERE r.state <> 'free' AND ",
    somebody_lost!()
);

/// The ids of a batch with the versions seen, which are this parameter of the statement.
macro_rules! seen {
    ($seen:literal) => {
        concat!(
            "unnest($1::bigint[], $2::bigint[], $3::bigint[], ",
            $seen,
            "::bigint[])
        WITH ORDINALITY AS a (id_high, id_middle, id_low, seen, n)"
        )
    };
}

/// The answer of a statement whose `won` knows the numbers of the swaps.
macro_rules! numbered {
    ($seen:literal) => {
        concat!(
            tally!(),
            all_alike!(""),
            "SELECT n, NULL, NULL, NULL, version, ",
            nothing_found!(),
            " FROM won WHERE NOT (SELECT alike FROM tally)
UNION ALL
SELECT a.n, NULL, NULL, NULL, NULL, ",
            found!(),
            " FROM ",
            seen!($seen),
            " JOIN onceward_receipts r ON ",
            same_id!(),
            " WHERE ",
            not_free!(),
            " AND r.version <> a.seen AND ",
            few!(),
            " AND ",
            somebody_lost!()
        )
    };
}

/// Whether a swap finds what it has seen.
macro_rules! as_seen {
    () => {
        concat!(same_id!(), " AND r.version = a.seen AND ", not_free!(), " AND ", few!())
    };
}

macro_rules! replace {
    ($arrays:literal, $columns:literal, $condition:expr) => {
        concat!(
            "WITH ",
            replace!("won", $arrays, $columns, "", $condition),
            numbered!("$8")
        )
    };
    ("won", $arrays:literal, $columns:literal, $joined:literal, $condition:expr) => {
        concat!(
            "won AS (
    UPDATE onceward_receipts r SET state = a.state, open_state = a.open_state,
        version = greatest(r.version + 1, (SELECT greatest(",
            now_us!(),
            ", $7::bigint + 1))), due = ",
            due_in!("a.due_us"),
            ", updated = statement_timestamp(), receipt = a.receipt
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $8::bigint[],
        $9::bigint[]",
            $arrays,
            ")
        WITH ORDINALITY AS a (id_high, id_middle, id_low, state, due_us, receipt, seen, open_state, ",
            $columns,
            "n)",
            $joined,
            "
    WHERE ",
            $condition,
            as_seen!(),
            " RETURNING a.n, r.version
)"
        )
    };
}

/// Replacements.
pub(super) const REPLACE: &str = replace!("", "", "");

/// Replacements of rows whose ctids ($10) are known, so that no index is read.
pub(super) const REPLACE_AT: &str = replace!(", $10::tid[]", "place, ", "r.ctid = a.place AND ");

/// Replacements of rows whose ctids ($10) are known, and nothing about those that lose: one row for each winner, with
/// its number, its version and its new ctid.
pub(super) const WRITE_TAKEN: &str = concat!(
    "UPDATE onceward_receipts r SET state = a.state, open_state = a.open_state,
    version = greatest(r.version + 1, (SELECT greatest(",
    now_us!(),
    ", $7::bigint + 1))), due = ",
    due_in!("a.due_us"),
    ", updated = statement_timestamp(), receipt = a.receipt
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $8::bigint[],
    $9::bigint[], $10::tid[]) WITH ORDINALITY AS a (id_high, id_middle, id_low, state, due_us, receipt, seen, open_state,
    place, n)
WHERE r.ctid = a.place AND ",
    as_seen!(),
    " RETURNING a.n, r.version, r.ctid"
);

/// Replacements that pass over rows that other transactions are changing: those have neither won nor lost yet.
pub(super) const REPLACE_UNLOCKED: &str = concat!(
    "WITH unlocked AS (
    SELECT r.ctid AS place, a.n FROM ",
    seen!("$8"),
    " JOIN onceward_receipts r ON ",
    as_seen!(),
    " FOR UPDATE OF r SKIP LOCKED
), ",
    replace!("won", "", "", " JOIN unlocked u USING (n)", "r.ctid = u.place AND "),
    numbered!("$8")
);

/// Removals that leave the version behind for a while ($6, in microseconds).
pub(super) const FREE: &str = concat!(
    "WITH won AS (
    UPDATE onceward_receipts r SET state = 'free', open_state = 5, version = greatest(r.version + 1, ",
    now_us!(),
    ", $5::bigint + 1), due = ",
    due_in!("$6::bigint"),
    ", updated = statement_timestamp(), receipt = ''
    FROM ",
    seen!("$4"),
    " WHERE ",
    as_seen!(),
    " RETURNING a.n, r.version
)",
    numbered!("$4")
);

/// Removals of records so old that nothing has to be left behind.
pub(super) const DELETE: &str = concat!(
    "WITH won AS (
    DELETE FROM onceward_receipts r USING ",
    seen!("$4"),
    " WHERE ",
    as_seen!(),
    " RETURNING a.n, greatest(r.version + 1, ",
    now_us!(),
    ") AS version
)",
    numbered!("$4")
);

/// Records by their ids; those that are absent give no row.
pub(super) const LOAD: &str = concat!(
    "SELECT a.n, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint AS won, ",
    found!(),
    " FROM ",
    each_by_id!("$1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[]"),
    " WHERE r.state <> 'free'"
);

macro_rules! create_one {
    () => {
        concat!(
            "INSERT INTO onceward_receipts AS r
    (id_high, id_middle, id_low, scope, operation, key, state, open_state, version, due, created, updated, receipt)
VALUES ($1, $2, $3, $4, $5, $6, $7, $11, greatest(",
            now_us!(),
            ", $10::bigint + 1), ",
            due_in!("$8::bigint"),
            ", statement_timestamp(), statement_timestamp(), $9)
ON CONFLICT (id_high, id_middle, id_low) DO "
        )
    };
}

/// One creation, by itself or as the first write of a transaction; no row if something is there, be it free.
/// Waits for other transactions on the same id.
pub(super) const CREATE_ONE: &str = concat!(create_one!(), "NOTHING RETURNING r.version, r.ctid");

/// The same, and also over a free row; no row if it lost.
pub(super) const CREATE_ONE_ANYWHERE: &str =
    concat!(create_one!(), take_free_place!(), " RETURNING r.version");

macro_rules! replace_one {
    ($due:expr, $rest:literal) => {
        concat!(
            "UPDATE onceward_receipts r SET state = $4, open_state = $8, version = greatest(r.version + 1, ",
            now_us!(),
            "), due = ",
            $due,
            ", updated = statement_timestamp(), receipt = $6
WHERE r.id_high = $1 AND r.id_middle = $2 AND r.id_low = $3 AND r.version = $7 AND ",
            not_free!(),
            $rest
        )
    };
}

/// A replacement, by itself or inside a transaction; no row if it lost.
pub(super) const REPLACE_ONE: &str = replace_one!(due_in!("$5::bigint"), " RETURNING r.version");

/// The same for a row whose ctid ($9) is known, so that no index is read.
pub(super) const REPLACE_ONE_AT: &str =
    replace_one!(due_in!("$5::bigint"), " AND r.ctid = $9 RETURNING r.version");

/// The same as the first write of a transaction, which says where the row is now. Waits for other transactions on the
/// same id.
pub(super) const TAKE_OVER_ONE: &str = replace_one!(due_in!("$5::bigint"), " RETURNING r.version, r.ctid");

macro_rules! complete_one {
    ($due:expr, $condition:literal) => {
        concat!(
            "WITH won AS (",
            replace_one!($due, $condition),
            " RETURNING 1) SELECT 1 / EXISTS (SELECT FROM won)::int"
        )
    };
}

/// A replacement as the last write before a commit that is already on its way: if it loses, it fails, and the
/// commit with it.
pub(super) const COMPLETE_ONE: &str = complete_one!(due_in!("$5::bigint"), "");

/// Whether the row with this ctid has this version, as the last statement before a commit that is already on its way: if
/// not, it fails, and the commit with it.
pub(super) const IS_WRITTEN: &str =
    "SELECT 1 / EXISTS (SELECT FROM onceward_receipts r WHERE r.ctid = $1 AND r.version = $2)::int";

/// The same for a row whose ctid ($9) is known, and whose due time stays if it is late enough: a row whose due time
/// stays needs no new entry in any index.
pub(super) const COMPLETE_ONE_KEEPING: &str =
    complete_one!(concat!("greatest(r.due, ", due_in!("$5::bigint"), ")"), " AND r.ctid = $9");

macro_rules! free_one {
    () => {
        concat!(
            "UPDATE onceward_receipts r SET state = 'free', open_state = 5, version = greatest(r.version + 1, ",
            now_us!(),
            "), due = ",
            due_in!("$5::bigint"),
            ", updated = statement_timestamp(), receipt = ''
WHERE r.id_high = $1 AND r.id_middle = $2 AND r.id_low = $3 AND r.version = $4 AND ",
            not_free!(),
            " RETURNING r.version"
        )
    };
}

/// A removal inside a transaction; no row if it lost.
pub(super) const FREE_ONE: &str = free_one!();

/// The same as the last write before a commit that is already on its way.
pub(super) const COMPLETE_BY_REMOVAL: &str =
    concat!("WITH won AS (", free_one!(), ") SELECT 1 / EXISTS (SELECT FROM won)::int");

pub(super) const LOAD_ONE: &str = concat!(
    "SELECT ",
    found!(),
    " FROM onceward_receipts r
WHERE r.id_high = $1 AND r.id_middle = $2 AND r.id_low = $3 AND r.scope = $4 AND r.operation = $5 AND r.key = $6 AND ",
    not_free!()
);

pub(super) use {each_by_id, found, now_us, same_id, same_texts};
