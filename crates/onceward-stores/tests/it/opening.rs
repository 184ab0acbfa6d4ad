//! What is said when a store is opened: poolers that are refused, and lines in the log.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{ErrorKind, Seen, State, Store, Swapped};
use onceward_stores::sql::Options;
use onceward_stores::{EtcdStore, MySqlStore, PostgresStore, RedisStore};

use crate::servers::{MariaDb, PgBouncer, Postgres};
use crate::support::{id, put};

/// Keeps the lines of the log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Begins to keep them, until the guard is dropped.
    pub(crate) fn begin() -> (Self, impl Drop) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing_subscriber::util::SubscriberInitExt::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Its sessions are given to others between transactions: settings and statements would be lost.
#[tokio::test]
async fn pgbouncer_in_transaction_mode_is_refused() {
    let Some(server) = Postgres::shared() else { return };
    for mode in ["transaction", "statement"] {
        let Some(bouncer) = PgBouncer::start(server, mode) else { return };
        for connections in [1, 4] {
            let options = Options::default().with_connections(connections);
            let error = PostgresStore::open(&bouncer.url(&server.fresh()), options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unfit, "{mode}: {error}");
            assert!(error.to_string().contains("pool_mode = session"), "{mode}: {error}");
        }
        // Nor do migrations go through it, nor the tables beside the receipts.
        let url = bouncer.url(&server.fresh());
        let migrated = PostgresStore::migrate(&url).await.map(drop);
        let pooled = onceward_stores::sql::postgres::pool_of(&url, &Options::default(), "").await.map(drop);
        for refused in [migrated, pooled] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unfit, "{mode}: {error}");
        }
    }
}

#[tokio::test]
async fn pgbouncer_in_session_mode_is_as_good_as_the_server() {
    let Some(server) = Postgres::shared() else { return };
    let Some(bouncer) = PgBouncer::start(server, "session") else { return };
    let store = PostgresStore::open(&bouncer.url(&server.fresh()), Options::default()).await.unwrap();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(60))]).await.unwrap();
    assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}");
}

#[tokio::test]
async fn replicas_that_are_not_waited_for_are_said() {
    let Some(server) = Postgres::start() else { return };
    let (log, guard) = Log::begin();
    PostgresStore::open(&server.url("postgres"), Options::default()).await.unwrap();
    assert!(!log.text().contains("failover"), "{}", log.text());
    let _standby = server.standby("one");
    // The standby answers before the server lists it.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while server.sql("postgres", "SELECT count(*) FROM pg_stat_replication") == "0" {
        assert!(std::time::Instant::now() < deadline, "the standby does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    PostgresStore::open(&server.url("postgres"), Options::default()).await.unwrap();
    assert!(
        log.text().contains("WARN") && log.text().contains("synchronous_standby_names is empty"),
        "{}",
        log.text()
    );
    drop(guard);
}

#[tokio::test]
async fn commits_that_do_not_wait_for_the_disk_are_said() {
    let Some(server) = Postgres::shared() else { return };
    let (durable, hasty) = (server.fresh(), server.fresh());
    server.sql("postgres", &format!("ALTER DATABASE {hasty} SET synchronous_commit = off"));
    let (log, guard) = Log::begin();
    PostgresStore::open(&server.url(&durable), Options::default()).await.unwrap();
    assert!(!log.text().contains("synchronous_commit"), "{}", log.text());
    PostgresStore::open(&server.url(&hasty), Options::default()).await.unwrap();
    assert!(log.text().contains("synchronous_commit is off"), "{}", log.text());
    drop(guard);
}

/// Before the first byte is sent: the host need not exist.
#[tokio::test]
async fn a_connection_unencrypted_is_said() {
    let (log, guard) = Log::begin();
    let soon = Duration::from_millis(10);
    let redis = onceward_stores::redis::Options::default().with_call_timeout(soon);
    RedisStore::open("redis://192.0.2.1:6379/0", redis.clone()).await.unwrap_err();
    assert!(
        log.text().contains("the connection to Redis at 192.0.2.1:6379 is not encrypted"),
        "{}",
        log.text()
    );
    let etcd = onceward_stores::etcd::Options::default().with_call_timeout(soon);
    EtcdStore::open("etcd://192.0.2.1", etcd).await.unwrap_err();
    assert!(
        log.text().contains("the connection to etcd at 192.0.2.1:2379 is not encrypted"),
        "{}",
        log.text()
    );
    let said = log.text();
    RedisStore::open("redis://127.0.0.1:1/0", redis).await.unwrap_err();
    assert_eq!(log.text(), said, "what stays on this machine needs no protection");
    drop(guard);
}

/// This machine under a name that is not recognised as such: names are compared as they are written.
const ELSEWHERE: &str = "LOCALHOST";

#[tokio::test]
async fn databases_that_are_reached_unencrypted_are_said() {
    let (Some(postgres), Some(mariadb)) = (Postgres::shared(), MariaDb::shared()) else { return };
    let (log, guard) = Log::begin();
    let url = postgres.url(&postgres.fresh());
    PostgresStore::open(&format!("{url}?sslmode=disable"), Options::default()).await.unwrap();
    let mysql = mariadb.url(&mariadb.fresh());
    MySqlStore::open(&mysql, Options::default()).await.unwrap();
    assert!(!log.text().contains("not encrypted"), "{}", log.text());
    let elsewhere = format!("{}?sslmode=disable", url.replace("127.0.0.1", ELSEWHERE));
    PostgresStore::open(&elsewhere, Options::default()).await.unwrap();
    assert!(log.text().contains("PostgreSQL at LOCALHOST"), "{}", log.text());
    MySqlStore::open(&mysql.replace("127.0.0.1", ELSEWHERE), Options::default()).await.unwrap();
    assert_eq!(log.text().matches("is not encrypted").count(), 2, "{}", log.text());
    drop(guard);
}

/// A sentinel names another machine: that one is reached unencrypted too.
#[tokio::test]
async fn a_primary_that_a_sentinel_names_is_said() {
    const PRIMARY: &str = "*2\r\n$9\r\n127.0.0.9\r\n$1\r\n1\r\n";
    // Addresses may leave out zeros.
    for (primary, is_said) in
        [(PRIMARY.replace("$9\r\n127.0.0.9", "$5\r\n127.1"), true), (PRIMARY.into(), false)]
    {
        let port = sentinel(primary).await;
        let (log, guard) = Log::begin();
        let url = format!("redis://127.0.0.1:{port}/0?sentinel=main");
        for _ in 0..2 {
            RedisStore::open(&url, onceward_stores::redis::Options::default()).await.unwrap_err();
        }
        let said = log.text().matches("Redis at 127.1:1 is not encrypted").count();
        assert_eq!(said, usize::from(is_said), "{}", log.text());
        drop(guard);
    }
}

/// Answers every command of a client of Redis, and the question for the primary with this.
async fn sentinel(primary: String) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let primary = primary.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = caller.read(&mut bytes).await {
                    let asked = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let commands = asked.lines().filter(|line| line.starts_with('*')).count();
                    let answers = if asked.contains("GET-MASTER-ADDR-BY-NAME") {
                        primary.clone()
                    } else {
                        "+OK\r\n".repeat(commands)
                    };
                    caller.write_all(answers.as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}
