//! PostgreSQL where things go wrong: addresses, rights, foreign tables, a server that hangs or dies.

use std::time::Duration;

use onceward::{Applied, Error, ErrorKind, Seen, State, Store, Swap, Swapped};
use onceward_stores::PostgresStore;
use onceward_stores::sql::{Migrated, Migrations, Options};

use crate::servers::Postgres;
use crate::support::{id, put, record};

fn refused(opened: Result<PostgresStore, Error>, kind: ErrorKind, part: &str) {
    let Err(error) = opened else { panic!("it opened, expected was: {part}") };
    assert_eq!((error.kind(), error.applied()), (kind, Applied::No), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

async fn open(url: &str) -> Result<PostgresStore, Error> {
    PostgresStore::open(url, Options::default()).await
}

#[tokio::test]
async fn what_cannot_be_opened_is_explained() {
    let Some(server) = Postgres::start() else { return };
    refused(open("postgres://[").await, ErrorKind::Invalid, "postgres://user");
    refused(open(&format!("{}?sslmode=require", server.url("postgres"))).await, ErrorKind::Invalid, "TLS");
    refused(open("postgres://postgres@127.0.0.1:1/x").await, ErrorKind::Unavailable, "connection");
    refused(open(&server.url("nowhere")).await, ErrorKind::Invalid, "no such database");
    let url = server.url("postgres").replace("postgres@", "nobody@");
    refused(open(&url).await, ErrorKind::Invalid, "user");

    let url = server.database("foreign_receipts");
    server.sql("foreign_receipts", "CREATE TABLE onceward_receipts (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");
    let url = server.database("foreign_schema");
    server.sql("foreign_schema", "CREATE TABLE onceward_schema (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");

    let url = server.database("newer");
    open(&url).await.unwrap();
    server.sql("newer", "INSERT INTO onceward_schema (version) VALUES (99)");
    refused(open(&url).await, ErrorKind::Foreign, "use a newer one");

    let url = server.database("rights");
    let require = Options { migrations: Migrations::Require, ..Options::default() };
    refused(PostgresStore::open(&url, require.clone()).await, ErrorKind::Invalid, "onceward migrate");
    server.sql("rights", "CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM public");
    let guest = url.replace("postgres@", "guest@");
    refused(open(&guest).await, ErrorKind::Invalid, "lacks a right");
    assert_eq!(PostgresStore::migrate(&url).await.unwrap(), Migrated { from: 0, to: 1 });
    assert_eq!(PostgresStore::migrate(&url).await.unwrap(), Migrated { from: 1, to: 1 });
    refused(open(&guest).await, ErrorKind::Invalid, "lacks a right");
    server.sql("rights", "GRANT SELECT ON onceward_schema, onceward_receipts TO guest");
    let store = PostgresStore::open(&guest, require).await.unwrap();
    let error = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(30))]).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No), "{error}");
}

#[tokio::test]
async fn connections_that_run_out_are_an_error_and_come_back() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("limited");
    open(&url).await.unwrap();
    server.sql(
        "limited",
        "CREATE ROLE few LOGIN CONNECTION LIMIT 1; GRANT ALL ON ALL TABLES IN SCHEMA public TO few",
    );
    let few = url.replace("postgres@", "few@");
    let first = open(&few).await.unwrap();
    refused(open(&few).await, ErrorKind::Unavailable, "connection");
    assert!(matches!(
        first.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap()[0],
        Swapped::Won(_)
    ));
}

/// A server that hangs must become an error that says what is not known, and the store must come back.
#[tokio::test]
async fn a_hanging_server_is_an_error_in_time() {
    let Some(server) = Postgres::start() else { return };
    let options = Options { call_timeout: Duration::from_millis(500), ..Options::default() };
    let store = PostgresStore::open(&server.url("postgres"), options).await.unwrap();
    let claim = [put(id(1), Seen::Absent, State::Held, Some(30))];
    store.swap(&[put(id(0), Seen::Absent, State::Held, Some(30))]).await.unwrap();
    server.freeze();
    let error = store.swap(&claim).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::Maybe), "{error}");
    let error = store.load(&[id(1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.thaw();
    let claimed = loop {
        match store.swap(&claim).await {
            Ok(swapped) => break swapped,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    };
    // Ours or the one that was given up: one of them is there.
    let there = store.load(&[id(1)]).await.unwrap().remove(0).expect("somebody claimed it");
    match &claimed[0] {
        Swapped::Won(version) => assert_eq!(there.version, *version),
        Swapped::Lost(found) => assert_eq!(found.as_ref().unwrap().version, there.version),
    }
}

/// A statement that waits for a lock of somebody else is given up, and nothing of it comes later.
#[tokio::test]
async fn a_lock_held_by_others_is_not_waited_for_for_ever() {
    let Some(server) = Postgres::start() else { return };
    let options = Options { call_timeout: Duration::from_millis(800), ..Options::default() };
    let store = PostgresStore::open(&server.url("postgres"), options).await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE onceward_receipts").await.unwrap();
    let error = store.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    client.batch_execute("COMMIT").await.unwrap();
    assert!(store.load(&[id(1)]).await.unwrap()[0].is_none());
}

/// What a batch reached before the server died is there afterwards, and everything else can be had again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_that_was_answered() {
    let Some(mut server) = Postgres::start() else { return };
    let store = std::sync::Arc::new(open(&server.url("postgres")).await.unwrap());
    for round in 0..3_u64 {
        let tasks: Vec<_> = (0..8_u64)
            .map(|task| {
                let store = std::sync::Arc::clone(&store);
                tokio::spawn(async move {
                    let mut won = Vec::new();
                    for number in 0..100_000_u64 {
                        let id = id(format!("{round}/{task}/{number}"));
                        match store.swap(&[put(id.clone(), Seen::Absent, State::Done, None)]).await {
                            Ok(swapped) => match swapped[0] {
                                Swapped::Won(version) => won.push((id, version)),
                                Swapped::Lost(_) => panic!("nobody else claims this"),
                            },
                            Err(_) => break,
                        }
                    }
                    won
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        let mut won = Vec::new();
        for task in tasks {
            won.extend(task.await.unwrap());
        }
        server.up();
        assert!(!won.is_empty());
        for (id, version) in won {
            let found = store.load(&[id]).await.unwrap().remove(0);
            assert_eq!(found.map(|found| found.version), Some(version));
        }
    }
}

/// Free rows go after their time, and never before somebody could be misled by their absence.
#[tokio::test]
async fn what_removals_leave_behind_is_purged() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server.url("postgres")).await.unwrap();
    let remove = async |key: u32| {
        let swapped = store.swap(&[put(id(key), Seen::Absent, State::Held, None)]).await.unwrap();
        let Swapped::Won(version) = swapped[0] else { panic!() };
        store.swap(&[Swap { id: id(key), seen: Seen::Version(version), new: None }]).await.unwrap();
    };
    for key in 0..20 {
        remove(key).await;
    }
    let count = || server.sql("postgres", "SELECT count(*) FROM onceward_receipts WHERE state = 'free'");
    let sweep = onceward::Scan { of: onceward::ScanOf::Due, after: None, limit: 10 };
    assert!(store.scan(&sweep).await.unwrap().found.is_empty());
    assert_eq!(count(), "20", "they are young");
    server.sql("postgres", "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 second'");
    assert!(store.scan(&sweep).await.unwrap().found.is_empty());
    assert_eq!(count(), "0");
    // An old record leaves nothing.
    let written = record(State::Done, None, "receipt");
    store.swap(&[Swap { id: id("old"), seen: Seen::Absent, new: Some(written) }]).await.unwrap();
    server.sql("postgres", "UPDATE onceward_receipts SET version = 1000");
    store.swap(&[put(id("other"), Seen::Absent, State::Held, None)]).await.unwrap();
    let removal = Swap { id: id("old"), seen: Seen::Version(onceward::Version(1000)), new: None };
    assert!(matches!(store.swap(&[removal]).await.unwrap()[0], Swapped::Won(_)));
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM onceward_receipts"), "1");
}
