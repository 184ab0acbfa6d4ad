//! SQLite where things go wrong: paths, foreign files and tables, somebody else in the way. There is no
//! server that could be old, full or dead; the process is, and `examples/payments` kills it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Applied, Error, ErrorKind, Seen, State, Store, Swapped};
use onceward_stores::SqliteStore;
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
    refused(open(&at("no/folder/x.db")).await, ErrorKind::Invalid, "check the path and the rights");
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
    sql(&at("newer"), "INSERT INTO onceward_schema (version) VALUES (99)");
    refused(open(&at("newer")).await, ErrorKind::Foreign, "use a newer one");

    let require = Options { migrations: Migrations::Require, ..Options::default() };
    refused(SqliteStore::open(at("new"), require).await, ErrorKind::Invalid, "onceward migrate");
    assert_eq!(SqliteStore::migrate(at("new")).await.unwrap(), Migrated { from: 0, to: 1 });
    assert_eq!(SqliteStore::migrate(at("new")).await.unwrap(), Migrated { from: 1, to: 1 });
}

/// Another process that keeps the write lock: a batch is given up as a whole, and can be had again.
#[tokio::test]
async fn a_lock_held_by_others_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked.db");
    let options = Options { call_timeout: Duration::from_millis(200), ..Options::default() };
    let store = SqliteStore::open(&path, options).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let batch: Vec<_> = (1..=3).map(|key| put(id(key), Seen::Absent, State::Held, Some(30))).collect();
    let error = store.swap(&batch).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    assert!(error.to_string().contains("locked for too long"), "{error}");
    // Readers are not held up.
    assert!(store.load(&[id(1)]).await.unwrap()[0].is_none());
    other.execute_batch("ROLLBACK").unwrap();
    let swapped = store.swap(&batch).await.unwrap();
    assert!(swapped.iter().all(|swapped| matches!(swapped, Swapped::Won(_))), "{swapped:?}");
}

/// More calls than may wait are turned away at once, with nothing done; all others are served in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_before_a_locked_file_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crowd.db");
    let options = Options { call_timeout: Duration::from_secs(60), ..Options::default() };
    let store = Arc::new(SqliteStore::open(&path, options).await.unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let crowd: Vec<_> = (0..1_100)
        .map(|key| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.swap(&[put(id(key), Seen::Absent, State::Held, None)]).await })
        })
        .collect();
    // The first to come back are those that were turned away: nobody else can.
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
                assert!(store.load(&[id(key)]).await.unwrap()[0].is_none());
                turned_away += 1;
            }
        }
    }
    assert_eq!(won + turned_away, 1_100);
    assert!(turned_away > 0 && won > 1_000, "{won} won");
}

/// A file that is damaged behind our back is an error, and not an absence.
#[tokio::test]
async fn damage_is_no_absence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.db");
    let batch: Vec<_> = (0..500).map(|key| put(id(key), Seen::Absent, State::Done, None)).collect();
    open(&path).await.unwrap().swap(&batch).await.unwrap();
    sql(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page holds the schema; everything behind it is lost.
    bytes[4096..].fill(0xaa);
    std::fs::write(&path, bytes).unwrap();
    let error = match open(&path).await {
        Err(error) => error,
        Ok(store) => store.load(&[id(1)]).await.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}
