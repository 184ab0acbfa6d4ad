//! The business tables, in `PostgreSQL`, `MySQL` or `SQLite`. Each write is in one transaction with the receipt of
//! the request or task that makes it.

use axum::body::Bytes;
use axum::response::Response;
use http_body_util::Full;
use mysql_async::prelude::Queryable;
use onceward::{Error, ErrorKind, Onceward, Result};
use onceward_flows::Saga;
use onceward_http::ResponseLease;
use onceward_stores::sql::mysql::{MySqlTransactions, MySqlTx};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
use onceward_stores::sql::sqlx::{SqlxTransactions, SqlxTx};
use sqlx::pool::PoolOptions;

use crate::charges::{Charge, NewCharge};
use crate::writes;

/// Connections for business transactions.
const CONNECTIONS: usize = 16;
/// Those of the pool of sqlx, where it is used.
const SQLX_CONNECTIONS: u32 = 16;

/// Where the business tables are.
#[derive(Clone)]
pub enum Database {
    Postgres(PostgresTransactions),
    MySql(MySqlTransactions),
    Sqlite(SqliteTransactions),
    /// Transactions are those of sqlx; what only reads is done by the other driver, as above.
    SqlxPostgres(SqlxTransactions<sqlx::Postgres>, PostgresTransactions),
    SqlxMySql(SqlxTransactions<sqlx::MySql>, MySqlTransactions),
}

/// Commits what the work writes and what it returns together, in any of them.
macro_rules! transact {
    ($database:expr, $lease:expr, $work:expr) => {
        match $database {
            Database::Postgres(pool) => $lease.transact(pool, |tx: PostgresTx| $work(tx)).await,
            Database::MySql(pool) => $lease.transact(pool, |tx: MySqlTx| $work(tx)).await,
            Database::Sqlite(file) => $lease.transact(file, |tx: SqliteTx| $work(tx)).await,
            Database::SqlxPostgres(pool, _) => {
                $lease.transact(pool, |tx: SqlxTx<sqlx::Postgres>| $work(tx)).await
            }
            Database::SqlxMySql(pool, _) => $lease.transact(pool, |tx: SqlxTx<sqlx::MySql>| $work(tx)).await,
        }
    };
}

/// A response that was committed.
pub type Committed = Response<Full<Bytes>>;

impl Database {
    /// Opens the database that the receipts are in, and makes the tables if they are not there.
    pub async fn open(url: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("sqlite", path)) => {
                let file = SqliteTransactions::open(path);
                let tables = tables("INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT").join(";");
                file.with(move |connection| connection.execute_batch(&tables)).await?;
                Ok(Self::Sqlite(file))
            }
            Some(("mysql", _)) => {
                let pool = MySqlTransactions::open(url, CONNECTIONS)?;
                let mut connection = pool.pool().get_conn().await.map_err(unavailable)?;
                // Text would compare `a` and `A` as the same order; bytes do not.
                for table in tables("BIGINT AUTO_INCREMENT PRIMARY KEY", "VARBINARY(255)") {
                    connection.query_drop(table).await.map_err(unavailable)?;
                }
                drop(connection);
                Ok(Self::MySql(pool))
            }
            _ => {
                let pool = PostgresTransactions::open(url, CONNECTIONS)?;
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let tables = tables("bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "text").join(";");
                // Two processes that start together must not both make the tables.
                let tables = format!("BEGIN; SELECT pg_advisory_xact_lock(81); {tables}; COMMIT");
                connection.batch_execute(&tables).await.map_err(unavailable)?;
                drop(connection);
                Ok(Self::Postgres(pool))
            }
        }
    }

    /// The same database, with the transactions of sqlx. (For SQLite, `examples/charge-api` shows them.)
    pub async fn with_sqlx(self, url: &str) -> Result<Self> {
        match self {
            Self::Postgres(tables) => {
                let pool = PoolOptions::new().max_connections(SQLX_CONNECTIONS).connect(url).await;
                Ok(Self::SqlxPostgres(pool.map_err(unavailable)?.into(), tables))
            }
            Self::MySql(tables) => {
                let pool = PoolOptions::new().max_connections(SQLX_CONNECTIONS).connect(url).await;
                Ok(Self::SqlxMySql(pool.map_err(unavailable)?.into(), tables))
            }
            _ => Err(Error::new(ErrorKind::Invalid, "`sqlx+` is for postgres:// and mysql://")),
        }
    }

    /// Makes a charge, and answers with it.
    pub async fn charge(&self, lease: &ResponseLease, new: &NewCharge) -> Result<Committed> {
        let key = lease.id().key();
        transact!(self, lease, async |tx| writes::charge(tx, new, key).await)
    }

    pub async fn place_order(&self, lease: &ResponseLease, order: &str) -> Result<Committed> {
        transact!(self, lease, async |tx| writes::place_order(tx, order).await)
    }

    pub async fn pay_order(&self, lease: &ResponseLease, order: &str) -> Result<Committed> {
        transact!(self, lease, async |tx| writes::pay_order(tx, order).await)
    }

    /// Reserves the money of a payout, and starts its saga.
    pub async fn accept_payout(
        &self,
        lease: &ResponseLease,
        new: &NewCharge,
        onceward: &Onceward,
        payout: &Saga,
    ) -> Result<Committed> {
        let key = lease.id().key();
        transact!(self, lease, async |tx| writes::accept_payout(tx, new, key, onceward, payout).await)
    }

    /// All charges, in the order in which they were made.
    pub async fn charges(&self) -> Result<Vec<Charge>> {
        const ALL: &str = "SELECT id, account, amount, idempotency_key FROM charges ORDER BY id";
        match self {
            Self::Postgres(pool) | Self::SqlxPostgres(_, pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let rows = connection.query(ALL, &[]).await.map_err(unavailable)?;
                let charge = |row: &tokio_postgres::Row| Charge {
                    id: row.get(0),
                    account: row.get(1),
                    amount: row.get(2),
                    idempotency_key: row.get(3),
                };
                Ok(rows.iter().map(charge).collect())
            }
            Self::MySql(pool) | Self::SqlxMySql(_, pool) => {
                let mut connection = pool.pool().get_conn().await.map_err(unavailable)?;
                let charge =
                    |(id, account, amount, idempotency_key)| Charge { id, account, amount, idempotency_key };
                connection.query_map(ALL, charge).await.map_err(unavailable)
            }
            Self::Sqlite(file) => {
                let read = |connection: &mut rusqlite::Connection| {
                    let mut statement = connection.prepare(ALL)?;
                    let charge = |row: &rusqlite::Row<'_>| {
                        Ok(Charge {
                            id: row.get(0)?,
                            account: row.get(1)?,
                            amount: row.get(2)?,
                            idempotency_key: row.get(3)?,
                        })
                    };
                    statement.query_map([], charge)?.collect()
                };
                file.with(read).await
            }
        }
    }

    /// A payout's transfer, empty as long as there is none.
    pub async fn payout(&self, key: &str) -> Result<String> {
        const ONE: &str = "SELECT transfer FROM payouts WHERE id = ";
        let missing = || Error::new(ErrorKind::Invalid, "there is no such payout");
        let key = key.to_owned();
        match self {
            Self::Postgres(pool) | Self::SqlxPostgres(_, pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let row = connection.query_opt(&format!("{ONE}$1"), &[&key]).await.map_err(unavailable)?;
                row.map(|row| row.get(0)).ok_or_else(missing)
            }
            Self::MySql(pool) | Self::SqlxMySql(_, pool) => {
                let mut connection = pool.pool().get_conn().await.map_err(unavailable)?;
                let row = connection.exec_first(format!("{ONE}?"), (key,)).await.map_err(unavailable)?;
                row.ok_or_else(missing)
            }
            Self::Sqlite(file) => {
                file.with(move |connection| {
                    connection.query_row(&format!("{ONE}?1"), [key], |row| row.get(0))
                })
                .await
            }
        }
    }

    /// An order's state, and how many confirmations were sent.
    pub async fn order(&self, order: &str) -> Result<(String, i64)> {
        const ONE: &str = "SELECT state, confirmations FROM orders WHERE id = ";
        let order = order.to_owned();
        match self {
            Self::Postgres(pool) | Self::SqlxPostgres(_, pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let row = connection.query_one(&format!("{ONE}$1"), &[&order]).await.map_err(unavailable)?;
                Ok((row.get(0), row.get(1)))
            }
            Self::MySql(pool) | Self::SqlxMySql(_, pool) => {
                let mut connection = pool.pool().get_conn().await.map_err(unavailable)?;
                let row = connection.exec_first(format!("{ONE}?"), (order,)).await.map_err(unavailable)?;
                row.ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no such order"))
            }
            Self::Sqlite(file) => {
                file.with(move |connection| {
                    connection.query_row(&format!("{ONE}?1"), [order], |row| Ok((row.get(0)?, row.get(1)?)))
                })
                .await
            }
        }
    }
}

/// The statements that create the tables, given the dialect's types for an auto-increment number and for a text key.
fn tables(number: &str, text: &str) -> [String; 3] {
    [
        format!(
            "CREATE TABLE IF NOT EXISTS charges (id {number}, account {text} NOT NULL, amount BIGINT NOT NULL,
                idempotency_key {text} NOT NULL)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS orders (id {text} PRIMARY KEY, state {text} NOT NULL,
                confirmations BIGINT NOT NULL DEFAULT 0)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS payouts (id {text} PRIMARY KEY, account {text} NOT NULL,
                amount BIGINT NOT NULL, transfer {text} NOT NULL)"
        ),
    ]
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the database cannot be reached").caused_by(error)
}
