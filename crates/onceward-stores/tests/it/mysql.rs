//! Failure tests of MySQL and MariaDB: addresses, rights, foreign tables, limits, a server that hangs
//! or dies.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use onceward::{Applied, Error, ErrorKind, Filter, Scan, ScanTarget, Seen, State, Store, Swapped};
use onceward_stores::MySqlStore;
use onceward_stores::sql::{Migrated, Migrations, Options};

use crate::servers::MariaDb;
use crate::support::{id, put};
use crate::trouble::{self, Server, refused};

impl Server for MariaDb {
    type Other = mysql_async::Conn;

    fn start() -> Option<Self> {
        let server = Self::start()?;
        server.database("bank");
        Some(server)
    }

    fn kill(&mut self) {
        self.kill();
    }

    fn up(&mut self) {
        self.up();
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }

    async fn open(&self, options: Options) -> Arc<dyn Store> {
        Arc::new(MySqlStore::open(&self.url("bank"), options).await.unwrap())
    }

    async fn occupy(&self, key: u32) -> mysql_async::Conn {
        let mut conn = mysql_async::Conn::from_url(self.url("bank")).await.unwrap();
        let occupy = format!(
            "INSERT INTO onceward_receipts
                (scope, operation, `key`, state, version, created, updated, receipt, writer)
            VALUES ('tenant', 'POST /charges', '{key}', 'held', 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '', '')"
        );
        conn.query_drop("START TRANSACTION").await.unwrap();
        conn.query_drop(occupy).await.unwrap();
        conn
    }

    /// A statement waits even after the store has given it up; the commit was not sent, so that it is rolled back.
    async fn is_waited_for(_: &mut mysql_async::Conn) -> bool {
        false
    }

    async fn leave(mut other: mysql_async::Conn) {
        other.query_drop("ROLLBACK").await.unwrap();
    }
}

async fn open(url: &str) -> Result<MySqlStore, Error> {
    MySqlStore::open(url, Options::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_trouble() {
    trouble::everything::<MariaDb>().await;
}

/// What needs nothing but a server, on one server.
#[tokio::test]
async fn failures_on_a_shared_server() {
    let Some(server) = MariaDb::start() else { return };
    what_cannot_be_opened_is_explained(&server).await;
    a_migration_that_was_cut_off_is_carried_out(&server).await;
    missing_rights_are_named(&server).await;
    connections_that_run_out_are_an_error_and_come_back(&server).await;
    connections_are_kept(&server).await;
    a_sweep_costs_what_is_due_and_not_what_is_kept(&server).await;
}

async fn what_cannot_be_opened_is_explained(server: &MariaDb) {
    refused(open("mysql://[").await, ErrorKind::Invalid, "mysql://user");
    let away = "cannot reach MySQL at 127.0.0.1:1, database `shop`: Connection refused";
    refused(open("mysql://app:secret@127.0.0.1:1/shop").await, ErrorKind::Unavailable, away);
    let migrated = MySqlStore::migrate("mysql://app:secret@127.0.0.1:1/shop").await;
    refused(migrated, ErrorKind::Unavailable, away);
    let named = server.url("nowhere");
    let named = named.split_once('@').unwrap().1.replace("/nowhere", ", database `nowhere`");
    let nowhere = format!("MySQL at {named}: there is no such database");
    refused(open(&server.url("nowhere")).await, ErrorKind::Invalid, &nowhere);
    refused(open(&server.url("nowhere")).await, ErrorKind::Invalid, "Unknown database 'nowhere'");
    refused(open(&server.url("")).await, ErrorKind::Invalid, "names no database");
    refused(open(&server.url("mysql").replace("root@", "nobody@")).await, ErrorKind::Invalid, "user");
    let wrong = server.url("mysql").replace("root@", "root:wrong@");
    refused(open(&wrong).await, ErrorKind::Invalid, "Access denied for user 'root'@");
    let Err(error) = open(&wrong).await else { panic!("it opened") };
    assert!(error.to_string().starts_with("MySQL at 127.0.0.1:"), "{error}");
    assert!(!format!("{error:?}").contains("wrong"), "{error:?}");

    let url = server.database("foreign_receipts");
    server.sql("foreign_receipts", "CREATE TABLE onceward_receipts (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");
    let url = server.database("foreign_schema");
    server.sql("foreign_schema", "CREATE TABLE onceward_schema (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");
    let url = server.database("other_columns");
    open(&url).await.unwrap();
    server.sql("other_columns", "ALTER TABLE onceward_receipts DROP COLUMN writer");
    refused(open(&url).await, ErrorKind::Foreign, "not those of onceward");

    let url = server.database("newer");
    open(&url).await.unwrap();
    server.sql("newer", "INSERT INTO onceward_schema (version, format) VALUES (99, 2)");
    refused(open(&url).await, ErrorKind::Foreign, "use a newer one");

    // As it was before the first release.
    let url = server.database("unreleased");
    server.sql(
        "unreleased",
        "CREATE TABLE onceward_schema (version INT PRIMARY KEY,
            applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
        INSERT INTO onceward_schema (version) VALUES (1);
        CREATE TABLE onceward_receipts (scope VARBINARY(255), operation VARBINARY(512), `key` VARBINARY(255),
            state VARBINARY(8), version BIGINT, due DATETIME(6), created DATETIME(6), updated DATETIME(6),
            receipt LONGBLOB, writer BINARY(16), PRIMARY KEY (scope, operation, `key`))",
    );
    let told = "drop `onceward_receipts` and `onceward_schema`";
    refused(open(&url).await, ErrorKind::Foreign, told);
    refused(MySqlStore::migrate(&url).await, ErrorKind::Foreign, told);
    server.sql("unreleased", "DROP TABLE onceward_receipts, onceward_schema");
    open(&url).await.unwrap();
}

/// The server commits each change of a table by itself, so a first start may die between any two.
async fn a_migration_that_was_cut_off_is_carried_out(server: &MariaDb) {
    let url = server.database("cut");
    server.sql("cut", "CREATE TABLE onceward_schema (version INT PRIMARY KEY, format INT NOT NULL)");
    let store = open(&url).await.unwrap();
    store.swap(&[put(id(1), Seen::Absent, State::Done, None)]).await.unwrap();
    // After its tables, and before the row of the identity and its own entry.
    server.sql("cut", "DELETE FROM onceward_schema; DELETE FROM onceward_identity");
    let require = Options::default().with_migrations(Migrations::Require);
    refused(MySqlStore::open(&url, require).await, ErrorKind::Invalid, "onceward migrate");
    let store = open(&url).await.unwrap();
    assert!(store.load(&[id(1)]).await.unwrap().remove(0).unwrap().is_some());
    let rows = "SELECT (SELECT COUNT(*) FROM onceward_schema) + (SELECT COUNT(*) FROM onceward_identity)";
    assert_eq!(server.sql("cut", rows).trim(), "2");
    // Between its tables.
    server.sql("cut", "DELETE FROM onceward_schema; DROP TABLE onceward_receipts");
    open(&url).await.unwrap();
    assert_eq!(server.sql("cut", rows).trim(), "2");
    // A foreign table is still refused.
    let url = server.database("cut_foreign");
    server.sql(
        "cut_foreign",
        "CREATE TABLE onceward_schema (version INT, format INT); CREATE TABLE onceward_receipts (x INT)",
    );
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");
}

/// A connection costs more than a claim.
async fn connections_are_kept(server: &MariaDb) {
    let store = open(&server.database("connections")).await.unwrap();
    let made = || -> i64 {
        let status = "SELECT variable_value FROM information_schema.global_status
            WHERE variable_name = 'CONNECTIONS'";
        server.sql("connections", status).parse().unwrap()
    };
    let before = made();
    for key in 0..100 {
        store.swap(&[put(id(key), Seen::Absent, State::Held, None)]).await.unwrap();
        store.load(&[id(key)]).await.unwrap();
    }
    // The connection of this query counts, too.
    let new = made() - before - 1;
    assert!(new <= 8, "{new} connections for 200 calls");
}

async fn missing_rights_are_named(server: &MariaDb) {
    let url = server.database("rights");
    let require = Options::default().with_migrations(Migrations::Require);
    refused(MySqlStore::open(&url, require.clone()).await, ErrorKind::Invalid, "onceward migrate");
    server.sql("rights", "CREATE USER guest");
    let guest = url.replace("root@", "guest@");
    refused(open(&guest).await, ErrorKind::Invalid, "does not let this user in");
    server.sql("rights", "GRANT SELECT ON rights.* TO guest");
    refused(open(&guest).await, ErrorKind::Invalid, "lacks a right");
    assert_eq!(MySqlStore::migrate(&url).await.unwrap(), Migrated::new(0, 1));
    assert_eq!(MySqlStore::migrate(&url).await.unwrap(), Migrated::new(1, 1));
    let store = MySqlStore::open(&guest, require).await.unwrap();
    let error = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(30))]).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No), "{error}");
    assert!(error.to_string().contains("lacks a right"), "{error}");
    assert!(store.load(&[id(1)]).await.unwrap().remove(0).unwrap().is_none());
}

/// A server of our own time that says it is an old one.
#[tokio::test]
async fn old_servers_are_refused() {
    let Some(mut server) = MariaDb::start_with(&["--version=10.5.28-MariaDB"]) else { return };
    let url = server.database("old");
    refused(open(&url).await, ErrorKind::Invalid, "MariaDB 10.5.28-MariaDB, at least 10.6 is needed");
    server.restart_with(&["--version=5.7.44"]);
    refused(open(&url).await, ErrorKind::Invalid, "MySQL 5.7.44, at least 8.0 is needed");
}

async fn connections_that_run_out_are_an_error_and_come_back(server: &MariaDb) {
    let url = server.database("limited");
    open(&url).await.unwrap();
    server.sql("limited", "CREATE USER few WITH MAX_USER_CONNECTIONS 1; GRANT ALL ON limited.* TO few");
    let few = url.replace("root@", "few@");
    let first = open(&few).await.unwrap();
    let claim = |key| [put(id(key), Seen::Absent, State::Held, None)];
    assert!(matches!(first.swap(&claim(1)).await.unwrap()[0], Swapped::Won(_)));
    refused(open(&few).await, ErrorKind::Unavailable, "no connection left");
    assert!(matches!(first.swap(&claim(2)).await.unwrap()[0], Swapped::Won(_)));
}

/// Counted by the server: rows read through its indexes.
async fn a_sweep_costs_what_is_due_and_not_what_is_kept(server: &MariaDb) {
    let store = open(&server.database("kept")).await.unwrap();
    for batch in 0..10 {
        let done = |number| put(id(batch * 500 + number), Seen::Absent, State::Done, Some(86_400));
        store.swap(&(0..500).map(done).collect::<Vec<_>>()).await.unwrap();
    }
    for (key, state) in State::ALL.into_iter().enumerate() {
        store.swap(&[put(id(format!("due-{key}")), Seen::Absent, state, Some(0))]).await.unwrap();
    }
    server.sql("kept", "ANALYZE TABLE onceward_receipts");
    let read = || {
        let sum = "SELECT SUM(variable_value) FROM information_schema.global_status
            WHERE variable_name IN ('HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT')";
        server.sql("kept", sum).parse::<f64>().unwrap()
    };
    let idle = read();
    let itself = read() - idle;
    let scan = async |of| {
        let before = read();
        let found = store.scan(&Scan::new(of, 100)).await.unwrap().found.len();
        (found, read() - before - itself)
    };
    let (found, rows) = scan(ScanTarget::Due(None)).await;
    assert_eq!(found, State::ALL.len());
    println!("one sweep over 5,000 kept and {found} due receipts read {rows} rows");
    assert!(rows < 200.0, "{rows} rows");

    // A scan for another state does not read done receipts, whether they are due or not.
    server.sql("kept", "UPDATE onceward_receipts SET due = '2000-01-01' WHERE state = 'done'");
    for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
        let (found, rows) = scan(ScanTarget::Due(Some(state))).await;
        assert_eq!(found, 1, "{state}");
        assert!(rows < 200.0, "{rows} rows for what is {state} and due");
        let (found, rows) = scan(ScanTarget::Matching(Filter::default().with_state(state))).await;
        assert_eq!(found, 1, "{state}");
        assert!(rows < 200.0, "{rows} rows for what is {state}");
    }
    // A scan for steps does not read the steps of other intents.
    let steps = ["one", "two"].map(|name| id(7).step(name).unwrap());
    store.swap(&steps.map(|step| put(step, Seen::Absent, State::Done, None))).await.unwrap();
    let (found, rows) = scan(ScanTarget::StepsOf(id(7))).await;
    assert_eq!(found, 2);
    assert!(rows < 50.0, "{rows} rows for two steps");
}
