//! The business tables, in `PostgreSQL`, `MySQL` or `SQLite`. Each write is a step of the intent that asks for
//! it: what it writes and the step's receipt are in one transaction.

use axum::body::Bytes;
use mysql_async::prelude::Queryable;
use onceward::{Error, ErrorKind, Lease, Result};
use onceward_stores::sql::mysql::{MySqlTransactions, MySqlTx};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};

use crate::charges::{Charge, NewCharge};
use crate::writes;

/// Connections for business transactions.
const CONNECTIONS: usize = 16;

/// Where the business tables are.
#[derive(Clone)]
pub enum Database {
    Postgres(PostgresTransactions),
    MySql(MySqlTransactions),
    Sqlite(SqliteTransactions),
}

/// Does the same in any of them.
macro_rules! step {
    ($database:expr, $lease:expr, $name:literal, $work:expr) => {{
        let answer = match $database {
            Database::Postgres(pool) => $lease.step_in(pool, $name, |_, tx: PostgresTx| $work(tx)).await?,
            Database::MySql(pool) => $lease.step_in(pool, $name, |_, tx: MySqlTx| $work(tx)).await?,
            Database::Sqlite(file) => $lease.step_in(file, $name, |_, tx: SqliteTx| $work(tx)).await?,
        };
        refused(answer.ran()).map(|ran| ran.outcome.body().clone())
    }};
}

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

    /// Makes a charge, and gives it as JSON.
    pub async fn charge(&self, lease: &Lease, new: &NewCharge) -> Result<Bytes> {
        let key = lease.id().key();
        step!(self, lease, "charge", async |tx| writes::charge(tx, new, key).await)
    }

    pub async fn place_order(&self, lease: &Lease, order: &str) -> Result<Bytes> {
        step!(self, lease, "place", async |tx| writes::place_order(tx, order).await)
    }

    pub async fn pay_order(&self, lease: &Lease, order: &str) -> Result<Bytes> {
        step!(self, lease, "pay", async |tx| writes::pay_order(tx, order).await)
    }

    pub async fn reserve(&self, lease: &Lease, new: &NewCharge) -> Result<Bytes> {
        let key = lease.id().key();
        step!(self, lease, "reserve", async |tx| writes::reserve(tx, new, key).await)
    }

    /// How much was reserved. The step is asked for once more: its receipt says what it did.
    pub async fn reserved(&self, lease: &Lease) -> Result<i64> {
        let reserved = step!(self, lease, "reserve", async |_tx| Err(writes::never_reserved()))?;
        let amount = std::str::from_utf8(&reserved).ok().and_then(|text| text.parse().ok());
        amount.ok_or_else(|| Error::new(ErrorKind::Invalid, "the reservation says no amount"))
    }

    pub async fn confirm(&self, lease: &Lease, transfer: &Bytes) -> Result<Bytes> {
        let (key, transfer) = (lease.id().key(), std::str::from_utf8(transfer).unwrap_or_default());
        step!(self, lease, "confirm", async |tx| writes::confirm(tx, key, transfer).await)
    }

    /// All charges, in the order in which they were made.
    pub async fn charges(&self) -> Result<Vec<Charge>> {
        const ALL: &str = "SELECT id, account, amount, idempotency_key FROM charges ORDER BY id";
        match self {
            Self::Postgres(pool) => {
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
            Self::MySql(pool) => {
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

    /// An order's state, and how many confirmations were sent.
    pub async fn order(&self, order: &str) -> Result<(String, i64)> {
        const ONE: &str = "SELECT state, confirmations FROM orders WHERE id = ";
        let order = order.to_owned();
        match self {
            Self::Postgres(pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let row = connection.query_one(&format!("{ONE}$1"), &[&order]).await.map_err(unavailable)?;
                Ok((row.get(0), row.get(1)))
            }
            Self::MySql(pool) => {
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

/// The tables, given what a number that grows by itself is called, and a text that can be a key.
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

/// A step that is refused (it is still running elsewhere) is a reason to come back.
pub fn refused<T>(answer: Result<T, onceward::Refusal>) -> Result<T> {
    answer.map_err(|refusal| Error::new(ErrorKind::Unavailable, refusal.to_string()))
}
