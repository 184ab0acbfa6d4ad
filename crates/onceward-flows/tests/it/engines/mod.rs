//! The promises that do not depend on the database, on each of them: PostgreSQL, MariaDB and SQLite. Statements of the
//! tests go through the same seam as those of the outbox, over sqlx; consumers use this project's own drivers.

mod consumers;
mod drivers;
mod interleavings;
mod overlapping;
mod relays;
mod upkeep;
mod versions;

use std::sync::Arc;

use onceward::Onceward;
use onceward_flows::{ConsumerDatabase, FlowTables, Message, Outbox};
use onceward_stores::sql::mysql::{MySqlTransactions, MySqlTx};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
use onceward_stores::sql::sqlx::Driver;
use onceward_stores::sql::{Cell, SqlTransaction, SqlTransactions};
use sqlx::{Pool, Transaction};

use crate::servers;

/// Runs generic tests on every engine, each a test of its own.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test::<crate::engines::MariaDb>().await })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test::<crate::engines::Postgres>().await })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test::<crate::engines::Sqlite>().await })+
        }
    };
}
pub(crate) use on_every_engine;

/// What differs between the engines.
pub(crate) trait Engine: Sized + Send + Sync + 'static {
    type Sqlx: Driver;
    type Transactions: SqlTransactions<Tx = Self::Tx> + Clone + 'static;
    type Tx: SqlTransaction + Clone + Sync + 'static;

    /// Whether a file has one writer, so that also other keys wait.
    const ONE_WRITER: bool = false;
    const BEGIN: &'static str;
    /// The type of a column that counts its rows.
    const COUNTED: &'static str;
    /// Whether a transaction waits for another one in this database.
    const WAITING: &'static str;

    /// The address of a fresh database; `None` if the server is not installed, which was reported.
    fn fresh() -> Option<String>;

    async fn pool(url: &str) -> Pool<Self::Sqlx>;

    fn transactions(url: &str) -> Self::Transactions;
}

pub(crate) struct Postgres;
pub(crate) struct MariaDb;
pub(crate) struct Sqlite;

impl Engine for Postgres {
    type Sqlx = sqlx::Postgres;
    type Transactions = PostgresTransactions;
    type Tx = PostgresTx;
    const BEGIN: &'static str = "BEGIN";
    const COUNTED: &'static str = "bigserial PRIMARY KEY";
    const WAITING: &'static str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted";

    fn fresh() -> Option<String> {
        let server = servers::Postgres::shared()?;
        Some(server.url(&server.fresh()))
    }

    async fn pool(url: &str) -> Pool<sqlx::Postgres> {
        sqlx::postgres::PgPoolOptions::new().max_connections(12).connect(url).await.unwrap()
    }

    fn transactions(url: &str) -> PostgresTransactions {
        PostgresTransactions::open(url, 8).unwrap()
    }
}

impl Engine for MariaDb {
    type Sqlx = sqlx::MySql;
    type Transactions = MySqlTransactions;
    type Tx = MySqlTx;
    const BEGIN: &'static str = "START TRANSACTION";
    const COUNTED: &'static str = "BIGINT AUTO_INCREMENT PRIMARY KEY";
    /// `innodb_trx` would say it directly, but is refreshed only when nobody has looked for a while.
    const WAITING: &'static str = "SELECT COUNT(*) FROM information_schema.processlist
        WHERE db = DATABASE() AND info LIKE 'UPDATE onceward_lanes%' AND time_ms > 20";

    fn fresh() -> Option<String> {
        let server = servers::MariaDb::shared()?;
        Some(server.url(&server.fresh()))
    }

    /// With the isolation that these servers have if nobody says anything: REPEATABLE READ.
    async fn pool(url: &str) -> Pool<sqlx::MySql> {
        sqlx::mysql::MySqlPoolOptions::new().max_connections(12).connect(url).await.unwrap()
    }

    fn transactions(url: &str) -> MySqlTransactions {
        MySqlTransactions::open(url, 8).unwrap()
    }
}

impl Engine for Sqlite {
    type Sqlx = sqlx::Sqlite;
    type Transactions = SqliteTransactions;
    type Tx = SqliteTx;
    const ONE_WRITER: bool = true;
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const COUNTED: &'static str = "INTEGER PRIMARY KEY AUTOINCREMENT";
    /// Nothing tells who waits.
    const WAITING: &'static str = "SELECT 1";

    fn fresh() -> Option<String> {
        let folder = tempfile::Builder::new().prefix("onceward-").tempdir().unwrap().keep();
        Some(format!("sqlite:{}", folder.join("app.db").display()))
    }

    async fn pool(url: &str) -> Pool<sqlx::Sqlite> {
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(&url["sqlite:".len()..])
            .busy_timeout(std::time::Duration::from_secs(60));
        sqlx::sqlite::SqlitePoolOptions::new().max_connections(12).connect_with(options).await.unwrap()
    }

    fn transactions(url: &str) -> SqliteTransactions {
        SqliteTransactions::open(&url["sqlite:".len()..])
    }
}

/// A fresh database with the tables for messages.
pub(crate) struct Db<E: Engine> {
    pub(crate) url: String,
    pub(crate) tables: FlowTables,
    pub(crate) pool: Pool<E::Sqlx>,
}

impl<E: Engine> Db<E> {
    pub(crate) async fn fresh() -> Option<Self> {
        crate::support::logged();
        Some(Self::open(&E::fresh()?).await)
    }

    pub(crate) async fn open(url: &str) -> Self {
        let (tables, pool) = (FlowTables::open(url).await.unwrap(), E::pool(url).await);
        Self { url: url.to_owned(), tables, pool }
    }

    pub(crate) async fn begin(&self) -> Transaction<'static, E::Sqlx> {
        self.pool.begin_with(E::BEGIN).await.unwrap()
    }

    /// Runs a statement, and returns its first row with `|` between the cells.
    pub(crate) async fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The same, where the server may be away.
    pub(crate) async fn try_sql(&self, statement: &str) -> Result<String, Box<dyn std::error::Error>> {
        let mut tx = if statement.starts_with("SELECT") {
            self.pool.begin().await?
        } else {
            self.pool.begin_with(E::BEGIN).await?
        };
        let cells = tx.fetch(statement, &[]).await?;
        tx.commit().await?;
        let cell = |cell: &Cell| match cell {
            Cell::Null => String::new(),
            Cell::Int(number) => number.to_string(),
            Cell::Text(text) => text.clone(),
            Cell::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("no text for {other:?}"),
        };
        Ok(cells.unwrap_or_default().iter().map(cell).collect::<Vec<_>>().join("|"))
    }

    pub(crate) async fn until(&self, statement: &str, expected: &str) {
        let start = std::time::Instant::now();
        loop {
            let found = self.sql(statement).await;
            if found == expected {
                return;
            }
            assert!(start.elapsed().as_secs() < 60, "{statement}: {found}, not {expected}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// The texts of the rows that match, in the order of their numbers, which begin at 1.
    pub(crate) async fn texts(&self, table: &str, number: &str, text: &str, of: &str) -> String {
        let (mut texts, mut after) = (Vec::new(), 0);
        loop {
            let next = format!(
                "SELECT {number}, {text} FROM {table} WHERE {number} > {after} AND {of} ORDER BY {number} LIMIT 1"
            );
            let row = self.sql(&next).await;
            let Some((number, text)) = row.split_once('|') else { return texts.join(" ") };
            after = number.parse::<i64>().unwrap();
            texts.push(text.to_owned());
        }
    }

    /// Commits messages, all in one transaction.
    pub(crate) async fn commit(&self, outbox: &Outbox, messages: impl IntoIterator<Item = Message>) {
        let mut tx = self.begin().await;
        let wake = outbox.add_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
        wake.fire();
    }

    /// For a consumer with its receipts here.
    pub(crate) async fn consumer_database(&self) -> ConsumerDatabase<E::Transactions> {
        ConsumerDatabase::new(
            Onceward::new(onceward_stores::open(&self.url).await.unwrap()).unwrap(),
            E::transactions(&self.url),
            self.tables.clone(),
        )
    }
}

impl<E: Engine> Clone for Db<E> {
    fn clone(&self) -> Self {
        Self { url: self.url.clone(), tables: self.tables.clone(), pool: self.pool.clone() }
    }
}

/// A database that several tasks use.
pub(crate) type SharedDb<E> = Arc<Db<E>>;
