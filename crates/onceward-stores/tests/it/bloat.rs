//! Tests that count what PostgreSQL has to read and to store: by a sweep over a table full of receipts that are
//! not due, and under somebody else's transaction that stays open and keeps the server from forgetting
//! anything. The numbers are in `docs/stores.md`.

use bytes::Bytes;
use onceward::{Filter, Id, Record, Scan, ScanTarget, Seen, State, Store, Swap, Swapped, Version};
use onceward_stores::PostgresStore;
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};

use crate::servers::Postgres;
use crate::support::{id, put};

const BATCH: u32 = 500;
const RECEIPT_BYTES: usize = 120;

async fn open(server: &Postgres) -> PostgresStore {
    PostgresStore::open(&server.url("postgres"), Options::default()).await.unwrap()
}

/// Writes this many receipts, claimed and then done.
async fn receipts(store: &PostgresStore, name: &str, count: u32) {
    let record = |state, due_in_s| {
        let due_in = Some(std::time::Duration::from_secs(due_in_s));
        Some(Record::new(state, Bytes::from_static(&[7; RECEIPT_BYTES])).with_due_in(due_in))
    };
    for batch in 0..count / BATCH {
        let ids: Vec<Id> = (0..BATCH).map(|number| id(format!("{name}-{batch}-{number:04}"))).collect();
        let claims: Vec<Swap> = ids
            .iter()
            .map(|id| Swap { id: id.clone(), seen: Seen::Absent, new: record(State::Held, 3_600) })
            .collect();
        let versions = won(&store.swap(&claims).await.unwrap());
        let endings: Vec<Swap> = ids
            .into_iter()
            .zip(versions)
            .map(|(id, seen)| Swap { id, seen: Seen::Version(seen), new: record(State::Done, 86_400) })
            .collect();
        won(&store.swap(&endings).await.unwrap());
    }
}

fn won(swapped: &[Swapped]) -> Vec<Version> {
    let version = |swapped: &Swapped| match swapped {
        Swapped::Won(version) => *version,
        other => panic!("did not win: {other:?}"),
    };
    swapped.iter().map(version).collect()
}

/// A sweep as the engine does it: what is done is removed, what is held stays. How many were found.
async fn sweep(store: &PostgresStore) -> usize {
    let (mut after, mut seen) = (None, 0);
    loop {
        let page =
            store.scan(&Scan::new(ScanTarget::Due(None), BATCH as usize).with_after(after)).await.unwrap();
        seen += page.found.len();
        let done = page.found.into_iter().filter(|(_, found)| found.state == State::Done);
        let mut removals: Vec<Swap> =
            done.map(|(id, found)| Swap { id, seen: Seen::Version(found.version), new: None }).collect();
        removals.sort_by(|one, other| one.id.cmp(&other.id));
        won(&store.swap(&removals).await.unwrap());
        match page.next {
            Some(next) => after = Some(next),
            None => return seen,
        }
    }
}

/// Entries of the due index that were read by this many sweeps of a new process.
async fn entries_read(server: &Postgres, sweeps: usize) -> i64 {
    let sweeps = async |store: &PostgresStore| {
        for _ in 0..sweeps {
            sweep(store).await;
        }
    };
    entries_read_by(server, "onceward_receipts_due", sweeps).await
}

/// Entries of an index, or of several, that were read by what a new process does.
async fn entries_read_by(server: &Postgres, indexes: &str, work: impl AsyncFnOnce(&PostgresStore)) -> i64 {
    let read = || {
        let sum = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes";
        number(server, &format!("{sum} WHERE indexrelname LIKE '{indexes}'"))
    };
    let before = read();
    let store = open(server).await;
    work(&store).await;
    drop(store);
    nobody_is_connected(server).await;
    read() - before
}

/// A backend hands in its counts when it ends.
async fn nobody_is_connected(server: &Postgres) {
    while number(server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onceward'") > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A transaction of somebody else's that keeps the server from forgetting anything.
async fn report(server: &Postgres) -> tokio_postgres::Client {
    let (report, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    report
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onceward_receipts")
        .await
        .unwrap();
    report
}

fn number(server: &Postgres, sql: &str) -> i64 {
    server.sql("postgres", sql).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_costs_what_is_due_and_not_what_is_kept() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server).await;
    receipts(&store, "kept", 5_000).await;
    won(&store
        .swap(&(0..10).map(|key| put(id(key), Seen::Absent, State::Done, Some(0))).collect::<Vec<_>>())
        .await
        .unwrap());
    drop(store);
    let read = entries_read(&server, 1).await;
    println!("one sweep over 5,000 kept and 10 due receipts read {read} entries of the index");
    assert!((10..100).contains(&read), "{read} entries");
}

/// Somebody's report runs for hours. Nothing can be forgotten meanwhile, and a receipt that nobody asks
/// for again stays in the way; still each sweep reads only what is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_foreign_transaction_costs_space_but_no_time() {
    const RECEIPTS: u32 = 5_000;
    // Vacuums run only when called here: collecting statistics holds a snapshot as well, so a concurrent vacuum may
    // leave dead rows.
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let store = open(&server).await;
    let report = report(&server).await;

    store.swap(&[put(id("abandoned"), Seen::Absent, State::Held, Some(30))]).await.unwrap();
    receipts(&store, "swept", RECEIPTS).await;
    let size = |of: &str| number(&server, &format!("SELECT pg_{of}_size('onceward_receipts')"));
    let written = (size("table"), size("indexes"));
    // An hour passes.
    server.sql(
        "postgres",
        "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 hour' WHERE state = 'done'",
    );
    server.sql(
        "postgres",
        "UPDATE onceward_receipts SET due = clock_timestamp() - interval '2 hours' WHERE state = 'held'",
    );
    assert_eq!(sweep(&store).await, RECEIPTS as usize + 1);
    assert_eq!(sweep(&store).await, 1);
    drop(store);

    let dead =
        number(&server, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'onceward_receipts'");
    let once = entries_read(&server, 1).await;
    let often = entries_read(&server, 21).await;
    println!(
        "{RECEIPTS} receipts: {} bytes of table and {} of indexes each; {dead} dead rows",
        written.0 / i64::from(RECEIPTS),
        written.1 / i64::from(RECEIPTS)
    );
    let updates = "SELECT n_tup_hot_upd || ' of ' || n_tup_upd FROM pg_stat_user_tables WHERE relname = 'onceward_receipts'";
    println!("HOT updates: {}", server.sql("postgres", updates));
    println!("entries read by a first sweep: {once}, by twenty more: {}", often - once);
    assert!(once >= i64::from(RECEIPTS), "the dead ones are there to be walked over: {once}");
    assert!(often - once < 500, "twenty more sweeps read {} entries", often - once);

    // Two minutes later: the free rows are removed as well.
    server.sql(
        "postgres",
        "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 second' WHERE state = 'free'",
    );
    let store = open(&server).await;
    while number(&server, "SELECT count(*) FROM onceward_receipts WHERE state = 'free'") > 0 {
        sweep(&store).await;
    }
    drop(store);

    // The report ends: dead rows are removed, and their space is used again.
    let most = (size("table"), size("indexes"));
    report.batch_execute("COMMIT").await.unwrap();
    // Empty pages of an index are only reused after the vacuum after the one that emptied them.
    for _ in 0..2 {
        server.sql("postgres", "VACUUM onceward_receipts");
        server.sql("postgres", "SELECT txid_current()");
    }
    assert_eq!(entries_read(&server, 1).await, 1, "only what stays is left");
    let store = open(&server).await;
    receipts(&store, "after", RECEIPTS).await;
    let again = (size("table"), size("indexes"));
    println!("bytes of table and indexes: {most:?} at most, {again:?} after as many more");
    // Compared with what the same number of receipts took when there was no space to reuse. Index pages that are not
    // empty are not reused, so some of it is new.
    let (table, indexes) = (again.0 - most.0, again.1 - most.1);
    assert!(table < written.0 / 10, "{table} new bytes of table, {} the first time", written.0);
    assert!(indexes < written.1 / 2, "{indexes} new bytes of indexes, {} the first time", written.1);
}

/// Receipts that are done are not read for what waits, is held, unknown or dead, be they due and not swept yet; nor are
/// those of other intents for the steps of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_by_state_or_for_steps_reads_only_what_it_needs() {
    const RECEIPTS: u32 = 5_000;
    const OPEN: [State; 4] = [State::Waiting, State::Held, State::Unknown, State::Dead];
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let store = open(&server).await;
    receipts(&store, "done", RECEIPTS).await;
    server.sql("postgres", "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 hour'");
    for state in OPEN {
        for due_in_s in [None, Some(0)] {
            let id = id(format!("{state}-{due_in_s:?}"));
            store.swap(&[put(id, Seen::Absent, state, due_in_s)]).await.unwrap();
        }
    }
    let parent = id("done-0-0007");
    let steps = ["one", "two"].map(|name| parent.step(name).unwrap());
    store.swap(&steps.map(|step| put(step, Seen::Absent, State::Done, Some(60)))).await.unwrap();
    drop(store);
    server.sql("postgres", "VACUUM ANALYZE onceward_receipts");
    let scan = async |of: ScanTarget, expected: usize| {
        let named = format!("{of:?}");
        let read = entries_read_by(&server, "onceward_receipts%", async |store| {
            let page = store.scan(&Scan::new(of.clone(), 10)).await.unwrap();
            assert_eq!((page.found.len(), page.next), (expected, None), "{named}");
        });
        let read = read.await;
        println!("{named}: {read} entries read");
        assert!(read < 50, "{named}: {read} entries read");
    };
    for state in OPEN {
        scan(ScanTarget::Due(Some(state)), 1).await;
        scan(ScanTarget::Matching(Filter::default().with_state(state)), 2).await;
    }
    scan(ScanTarget::StepsOf(parent.clone()), 2).await;
    let key = Some(parent.key().to_owned());
    scan(ScanTarget::Matching(Filter::default().with_scope("tenant".to_owned()).with_key(key)), 3).await;
}

/// A worker looks often, and what it has worked on leaves dead entries behind: it does not read them again and again
/// while a report keeps the server from forgetting them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_of_a_worker_do_not_read_dead_entries_repeatedly() {
    const TASKS: u32 = 2_000;
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let store = open(&server).await;
    let report = report(&server).await;
    let ids: Vec<Id> = (0..TASKS).map(|number| id(format!("task-{number:05}"))).collect();
    let all = |state, seen: &[Seen]| -> Vec<Swap> {
        ids.iter().zip(seen).map(|(id, seen)| put(id.clone(), *seen, state, Some(3_600))).collect()
    };
    let seen = |versions: Vec<Version>| versions.into_iter().map(Seen::Version).collect::<Vec<_>>();
    let absent = vec![Seen::Absent; ids.len()];
    // All of it fell due an hour ago: what did so within the grace period is read again.
    let an_hour_ago =
        || server.sql("postgres", "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 hour'");
    let waiting = seen(won(&store.swap(&all(State::Waiting, &absent)).await.unwrap()));
    an_hour_ago();
    let held = seen(won(&store.swap(&all(State::Held, &waiting)).await.unwrap()));
    an_hour_ago();
    won(&store.swap(&all(State::Done, &held)).await.unwrap());
    // There is one of each that this worker has no handler for.
    for state in [State::Waiting, State::Held] {
        store.swap(&[put(id(state), Seen::Absent, state, Some(3_600))]).await.unwrap();
    }
    an_hour_ago();
    drop(store);
    let looks = async |count: usize| {
        entries_read_by(&server, "onceward_receipts%", async |store| {
            for _ in 0..count {
                for state in [State::Waiting, State::Held] {
                    let scan = Scan::new(ScanTarget::Due(Some(state)), 256);
                    assert_eq!(store.scan(&scan).await.unwrap().found.len(), 1, "{state}");
                }
            }
        })
        .await
    };
    let (once, often) = (looks(1).await, looks(21).await);
    println!("entries read by a first look: {once}, by twenty more: {}", often - once);
    assert!(often - once < 500, "twenty more looks read {} entries", often - once);
    report.batch_execute("COMMIT").await.unwrap();
}

/// The report still runs, and the server has counted ten receipts in a table full of dead ones. Now it takes
/// walking over a whole index for cheaper than looking up ten ids; ours are looked up all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_of_a_nearly_empty_table_mislead_no_batch() {
    const RECEIPTS: u32 = 10_000;
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let store = open(&server).await;
    let report = report(&server).await;
    receipts(&store, "swept", RECEIPTS).await;
    server.sql("postgres", "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 hour'");
    assert_eq!(sweep(&store).await, RECEIPTS as usize);
    // These are due as well, and must not be removed.
    let ids: Vec<Id> = (0..10).map(id).collect();
    let swaps = |seen: &[Seen], state| -> Vec<Swap> {
        ids.iter().zip(seen).map(|(id, seen)| put(id.clone(), *seen, state, Some(0))).collect()
    };
    let seen = |versions: Vec<Version>| versions.into_iter().map(Seen::Version).collect::<Vec<_>>();
    let claimed = seen(won(&store.swap(&swaps(&[Seen::Absent; 10], State::Held)).await.unwrap()));
    server.sql(
        "postgres",
        "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 hour' WHERE state = 'held'",
    );
    drop(store);
    server.sql("postgres", "ANALYZE onceward_receipts");

    let batches = async |store: &PostgresStore| {
        assert!(store.load(&ids).await.unwrap().into_iter().all(|found| found.unwrap().is_some()));
        let lost = store.swap(&swaps(&[Seen::Absent; 10], State::Held)).await.unwrap();
        assert!(lost.iter().all(|swapped| matches!(swapped, Swapped::Lost(Some(_)))), "{lost:?}");
        won(&store.swap(&swaps(&claimed, State::Unknown)).await.unwrap());
        let lost = store.swap(&swaps(&claimed, State::Unknown)).await.unwrap();
        assert!(lost.iter().all(|swapped| matches!(swapped, Swapped::Lost(Some(_)))), "{lost:?}");
    };
    let read = entries_read_by(&server, "onceward_receipts%", batches).await;
    println!("five batches of ten read {read} entries of all indexes");
    assert!(read < 500, "five batches of ten read {read} entries");
    let once = entries_read_by(&server, "onceward_receipts%", async |store| {
        sweep(store).await;
    })
    .await;
    let often = entries_read_by(&server, "onceward_receipts%", async |store| {
        for _ in 0..6 {
            sweep(store).await;
        }
    })
    .await;
    println!("entries read by a first sweep: {once}, by five more: {}", often - once);
    assert!(often - once < 500, "five more sweeps read {} entries", often - once);
    report.batch_execute("COMMIT").await.unwrap();
}

/// A completion knows where its row is, so only a claim looks anything up; and where it does not find it there,
/// because the table was rewritten meanwhile, it looks for the id after all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_finds_its_row_without_an_index_or_with_one() {
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let store = open(&server).await;
    // So that there is something to be rewritten.
    receipts(&store, "old", 100).await;
    server.sql("postgres", "DELETE FROM onceward_receipts");
    drop(store);
    for (rewritten, count) in [(false, 1), (false, 20), (true, 1), (true, 20)] {
        let ids: Vec<Id> = (0..count).map(|key| id(format!("{rewritten}-{count}-{key:02}"))).collect();
        let looked_up = entries_read_by(&server, "onceward_receipts_pkey", async |store| {
            let claims: Vec<Swap> =
                ids.iter().map(|id| put(id.clone(), Seen::Absent, State::Held, Some(30))).collect();
            let versions = won(&store.swap(&claims).await.unwrap());
            if rewritten {
                server.sql("postgres", "VACUUM FULL onceward_receipts");
            }
            let endings: Vec<Swap> = ids
                .iter()
                .zip(versions)
                .map(|(id, seen)| put(id.clone(), Seen::Version(seen), State::Done, Some(60)))
                .collect();
            won(&store.swap(&endings).await.unwrap());
        })
        .await;
        println!("{count} completions, rewritten: {rewritten}: {looked_up} entries read");
        assert_eq!(looked_up > 0, rewritten, "{looked_up} entries read for {count} claims and completions");
        let done = "SELECT count(*) FROM onceward_receipts WHERE state = 'done' AND key LIKE";
        assert_eq!(number(&server, &format!("{done} '{rewritten}-{count}-%'")), count);
    }
}

/// What rides in a transaction takes its last due time with the claim, so that its completion moves in no index;
/// and is kept as long as asked for, or a moment longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_in_a_transaction_moves_in_no_index() {
    const COUNT: i64 = 200;
    let Some(server) = Postgres::start_with(&["autovacuum=off"]) else { return };
    let onceward = onceward::Onceward::new(std::sync::Arc::new(open(&server).await)).unwrap();
    let transactions = PostgresTransactions::open(&server.url("postgres"), 2).unwrap();
    let policy = std::sync::Arc::new(onceward::Policy::http());
    for key in 0..COUNT {
        let fingerprint = onceward::Fingerprint::new(1, [7; 32]);
        let ask = onceward::Ask::new(id(key), fingerprint, policy.clone());
        let work = async |_: onceward::Lease, _: PostgresTx| Ok(onceward::Outcome::succeeded("paid"));
        assert!(onceward.transact(&transactions, ask, work).await.unwrap().into_result().is_ok());
    }
    drop((onceward, transactions));
    nobody_is_connected(&server).await;
    let table = "FROM pg_stat_user_tables WHERE relname = 'onceward_receipts'";
    let updates = number(&server, &format!("SELECT n_tup_upd {table}"));
    let in_place = number(&server, &format!("SELECT n_tup_hot_upd {table}"));
    println!("{in_place} of {updates} completions moved in no index");
    assert_eq!(updates, COUNT);
    // Not those whose page was full.
    assert!(in_place > COUNT * 8 / 10, "{in_place} of {updates}");
    let kept = "SELECT count(*) FROM onceward_receipts WHERE due - updated BETWEEN interval";
    assert_eq!(number(&server, &format!("{kept} '24 hours' AND interval '24 hours 1 minute'")), COUNT);
}
