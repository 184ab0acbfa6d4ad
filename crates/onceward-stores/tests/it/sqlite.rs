//! Failure tests of SQLite: paths, foreign files and tables, locks of other connections. There is no server that
//! could fail; `examples/payments` kills the process instead.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Applied, Error, ErrorKind, Filter, Scan, ScanTarget, Seen, State, Store, Swapped, Transactions,
};
use onceward_stores::SqliteStore;
use onceward_stores::sql::sqlite::SqliteTransactions;
use onceward_stores::sql::{Migrated, Migrations, Options};

use crate::support::{id, put};
use crate::trouble::refused;

async fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, Options::default()).await
}

fn sql(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn what_cannot_be_opened_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    refused(open(Path::new("")).await, ErrorKind::Invalid, "needs a file");
    refused(open(Path::new(":memory:")).await, ErrorKind::Invalid, "needs a file");
    refused(
        open(&at("no/folder/x.db")).await,
        ErrorKind::Invalid,
        "no/folder/x.db: the SQLite file cannot be opened",
    );
    refused(open(folder.path()).await, ErrorKind::Invalid, "check the path and the rights");
    // Not even root may write here.
    refused(open(Path::new("/proc/onceward.db")).await, ErrorKind::Invalid, "check the path and the rights");

    let text = "This is a letter and not a database. ".repeat(100);
    std::fs::write(at("letter"), &text).unwrap();
    refused(open(&at("letter")).await, ErrorKind::Foreign, "not an SQLite database");
    assert_eq!(std::fs::read_to_string(at("letter")).unwrap(), text, "it was changed");

    sql(&at("receipts"), "CREATE TABLE onceward_receipts (x INT)");
    refused(open(&at("receipts")).await, ErrorKind::Foreign, "not made by onceward");
    sql(&at("schema"), "CREATE TABLE onceward_schema (x INT)");
    refused(open(&at("schema")).await, ErrorKind::Foreign, "not made by onceward");
    open(&at("columns")).await.unwrap();
    sql(&at("columns"), "DROP VIEW onceward_readable; ALTER TABLE onceward_receipts RENAME updated TO x");
    refused(open(&at("columns")).await, ErrorKind::Foreign, "other columns");
    open(&at("newer")).await.unwrap();
    sql(&at("newer"), "INSERT INTO onceward_schema (version, format) VALUES (99, 2)");
    refused(open(&at("newer")).await, ErrorKind::Foreign, "use a newer one");

    // As it was before the first release.
    sql(
        &at("unreleased"),
        "CREATE TABLE onceward_schema (
            version INTEGER PRIMARY KEY, applied TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT;
        INSERT INTO onceward_schema (version) VALUES (1);
        CREATE TABLE onceward_receipts (scope TEXT NOT NULL, operation TEXT NOT NULL, key TEXT NOT NULL,
            state TEXT NOT NULL, version INTEGER NOT NULL, due INTEGER, created INTEGER NOT NULL,
            updated INTEGER NOT NULL, receipt BLOB NOT NULL, PRIMARY KEY (scope, operation, key)) STRICT, WITHOUT ROWID;
        CREATE TABLE onceward_version
            (one INTEGER PRIMARY KEY CHECK (one = 1), version_max INTEGER NOT NULL) STRICT;
        INSERT INTO onceward_version VALUES (1, 4000000000000000);
        CREATE VIEW onceward_readable AS SELECT scope FROM onceward_receipts",
    );
    let told = "drop `onceward_receipts` and `onceward_schema`";
    refused(open(&at("unreleased")).await, ErrorKind::Foreign, told);
    refused(SqliteStore::migrate(at("unreleased")).await, ErrorKind::Foreign, told);
    // Once the tables are dropped as advised, it opens, and versions continue from where they were.
    sql(&at("unreleased"), "DROP TABLE onceward_receipts; DROP TABLE onceward_schema");
    let store = open(&at("unreleased")).await.unwrap();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap();
    assert!(matches!(swapped[0], Swapped::Won(version) if version.0 > 4_000_000_000_000_000), "{swapped:?}");

    let require = Options::default().with_migrations(Migrations::Require);
    refused(SqliteStore::open(at("new"), require).await, ErrorKind::Invalid, "onceward migrate");
    assert_eq!(SqliteStore::migrate(at("new")).await.unwrap(), Migrated::new(0, 2));
    assert_eq!(SqliteStore::migrate(at("new")).await.unwrap(), Migrated::new(2, 2));
}

/// Another process that keeps the write lock: a batch is given up as a whole, and can be had again.
#[tokio::test]
async fn a_lock_held_by_others_is_not_waited_for_forever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked.db");
    let options = Options::default().with_call_timeout(Duration::from_millis(200));
    let store = SqliteStore::open(&path, options).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let batch: Vec<_> = (1..=3).map(|key| put(id(key), Seen::Absent, State::Held, Some(30))).collect();
    let error = store.swap(&batch).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    assert!(error.to_string().contains("locked for too long"), "{error}");
    // Readers are not held up.
    assert!(store.load(&[id(1)]).await.unwrap().remove(0).unwrap().is_none());
    other.execute_batch("ROLLBACK").unwrap();
    let swapped = store.swap(&batch).await.unwrap();
    assert!(swapped.iter().all(|swapped| matches!(swapped, Swapped::Won(_))), "{swapped:?}");
}

/// More calls than may wait are turned away at once, with nothing done; all others are served in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_for_a_locked_file_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crowd.db");
    let options = Options::default().with_call_timeout(Duration::from_secs(60));
    let store = Arc::new(SqliteStore::open(&path, options).await.unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let crowd: Vec<_> = (0..1_100)
        .map(|key| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.swap(&[put(id(key), Seen::Absent, State::Held, None)]).await })
        })
        .collect();
    // The calls that were refused return first: no others can.
    while !crowd.iter().any(tokio::task::JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
    other.execute_batch("ROLLBACK").unwrap();
    let (mut won, mut turned_away) = (0, 0);
    for (key, one) in crowd.into_iter().enumerate() {
        match one.await.unwrap() {
            Ok(swapped) => won += usize::from(matches!(swapped[0], Swapped::Won(_))),
            Err(error) => {
                assert_eq!((error.kind(), error.applied()), (ErrorKind::Overloaded, Applied::No), "{error}");
                assert!(store.load(&[id(key)]).await.unwrap().remove(0).unwrap().is_none());
                turned_away += 1;
            }
        }
    }
    assert_eq!(won + turned_away, 1_100);
    assert!(turned_away > 0 && won > 1_000, "{won} won");
}

/// A damaged file is an error; its records are not reported as absent.
#[tokio::test]
async fn a_damaged_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.db");
    let batch: Vec<_> = (0..500).map(|key| put(id(key), Seen::Absent, State::Done, None)).collect();
    open(&path).await.unwrap().swap(&batch).await.unwrap();
    sql(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page holds the schema; everything after it is lost.
    bytes[4096..].fill(0xaa);
    std::fs::write(&path, bytes).unwrap();
    let error = match open(&path).await {
        Err(error) => error,
        Ok(store) => store.load(&[id(1)]).await.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

/// Whatever the error is wrapped in on its way out of the work.
#[test]
fn busy_is_worth_repeating_wherever_it_is_in_the_chain() {
    let transactions = SqliteTransactions::open("unused.db");
    let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
    for (code, expected) in [(rusqlite::ffi::SQLITE_BUSY, true), (rusqlite::ffi::SQLITE_FULL, false)] {
        let wrapped = Error::new(ErrorKind::Unavailable, "inside").caused_by(failure(code));
        let twice = Error::new(ErrorKind::Unavailable, "outside").caused_by(wrapped.clone());
        assert_eq!(transactions.is_worth_repeating(&failure(code)), expected, "{code}");
        assert_eq!(transactions.is_worth_repeating(&wrapped), expected, "{code}");
        assert_eq!(transactions.is_worth_repeating(&twice), expected, "{code}");
    }
    assert!(!transactions.is_worth_repeating(&std::io::Error::other("something else")));
}

/// One look is enough, however many receipts there are that are done.
#[tokio::test]
async fn scans_read_only_what_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.db");
    let store = open(&path).await.unwrap();
    let done: Vec<_> =
        (0..2_000).map(|key| put(id(format!("{key:04}")), Seen::Absent, State::Done, Some(0))).collect();
    store.swap(&done).await.unwrap();
    for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
        for due_in_s in [None, Some(0), Some(3_600)] {
            let key = format!("{state}-{due_in_s:?}");
            store.swap(&[put(id(key), Seen::Absent, state, due_in_s)]).await.unwrap();
        }
    }
    let count = async |of: ScanTarget| {
        let page = store.scan(&Scan::new(of, 10)).await.unwrap();
        assert!(page.next.is_none() && page.unreadable.is_empty());
        page.found.len()
    };
    for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
        assert_eq!(count(ScanTarget::Due(Some(state))).await, 1, "{state}");
        let filter = Filter::default().with_state(state);
        assert_eq!(count(ScanTarget::Matching(filter)).await, 3, "{state}");
    }
    let steps = ["one", "two"].map(|name| id("0007").step(name).unwrap());
    store.swap(&steps.map(|step| put(step, Seen::Absent, State::Done, None))).await.unwrap();
    assert_eq!(count(ScanTarget::StepsOf(id("0007"))).await, 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts.db");
    let _store = SqliteStore::open(&path, Options::default()).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}
