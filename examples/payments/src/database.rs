//! The business tables, in `PostgreSQL` or in `SQLite`. Each write is a step of the intent that asks for it:
//! what it writes and the step's receipt are in one transaction.

use axum::body::Bytes;
use onceward::{Error, ErrorKind, Lease, Outcome, Result, Stopped};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
use onceward_stores::sql::{self, Cell, SqlTransaction, States, Transition, Value};

use crate::charges::{Charge, NewCharge};

const ORDERS: States<'static> = States { table: "orders", key: "id", state: "state" };

/// Where the business tables are.
#[derive(Clone)]
pub enum Database {
    Postgres(PostgresTransactions),
    Sqlite(SqliteTransactions),
}

/// Does the same in either database.
macro_rules! step {
    ($database:expr, $lease:expr, $name:literal, $work:expr) => {{
        let answer = match $database {
            Database::Postgres(pool) => $lease.step_in(pool, $name, |_, tx: PostgresTx| $work(tx)).await?,
            Database::Sqlite(file) => $lease.step_in(file, $name, |_, tx: SqliteTx| $work(tx)).await?,
        };
        refused(answer.ran()).map(|ran| ran.outcome.body().clone())
    }};
}

impl Database {
    /// Opens the database that the receipts are in, and makes the tables if they are not there.
    pub async fn open(url: &str) -> Result<Self> {
        let database = match url.strip_prefix("sqlite:") {
            Some(path) => Self::Sqlite(SqliteTransactions::open(path)),
            None => Self::Postgres(PostgresTransactions::open(url, 16)?),
        };
        match &database {
            Self::Sqlite(file) => {
                let id = "INTEGER PRIMARY KEY AUTOINCREMENT";
                file.with(move |connection| connection.execute_batch(&tables(id))).await?;
            }
            Self::Postgres(pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let id = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY";
                // Two processes that start together must not both make the tables.
                let tables = format!("BEGIN; SELECT pg_advisory_xact_lock(81); {} COMMIT", tables(id));
                connection.batch_execute(&tables).await.map_err(unavailable)?;
            }
        }
        Ok(database)
    }

    /// Makes a charge, and gives it as JSON.
    pub async fn charge(&self, lease: &Lease, new: &NewCharge) -> Result<Bytes> {
        let key = lease.id().key();
        step!(self, lease, "charge", async |tx| insert_charge(tx, new, key).await)
    }

    pub async fn place_order(&self, lease: &Lease, order: &str) -> Result<Bytes> {
        step!(self, lease, "place", async |tx| place_order(tx, order).await)
    }

    pub async fn pay_order(&self, lease: &Lease, order: &str) -> Result<Bytes> {
        step!(self, lease, "pay", async |tx| pay_order(tx, order).await)
    }

    pub async fn reserve(&self, lease: &Lease, new: &NewCharge) -> Result<Bytes> {
        let key = lease.id().key();
        step!(self, lease, "reserve", async |tx| reserve(tx, new, key).await)
    }

    pub async fn confirm(&self, lease: &Lease, transfer: &Bytes) -> Result<Bytes> {
        let (key, transfer) = (lease.id().key(), std::str::from_utf8(transfer).unwrap_or_default());
        step!(self, lease, "confirm", async |tx| confirm(tx, key, transfer).await)
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
        const ONE: &str = "SELECT state, confirmations FROM orders WHERE id = $1";
        let order = order.to_owned();
        match self {
            Self::Postgres(pool) => {
                let connection = pool.pool().get().await.map_err(unavailable)?;
                let row = connection.query_one(ONE, &[&order]).await.map_err(unavailable)?;
                Ok((row.get(0), row.get(1)))
            }
            Self::Sqlite(file) => {
                file.with(move |connection| {
                    connection.query_row(ONE, [order], |row| Ok((row.get(0)?, row.get(1)?)))
                })
                .await
            }
        }
    }
}

fn tables(id: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS charges (
            id {id}, account TEXT NOT NULL, amount BIGINT NOT NULL, idempotency_key TEXT NOT NULL);
         CREATE TABLE IF NOT EXISTS orders (
            id TEXT PRIMARY KEY, state TEXT NOT NULL, confirmations BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE IF NOT EXISTS payouts (
            id TEXT PRIMARY KEY, account TEXT NOT NULL, amount BIGINT NOT NULL, transfer TEXT NOT NULL);"
    )
}

/// Nothing here guards against a second charge: the receipt in the same transaction does.
async fn insert_charge(mut tx: impl SqlTransaction, new: &NewCharge, key: &str) -> Result<Outcome, Stopped> {
    let insert = "INSERT INTO charges (account, amount, idempotency_key) VALUES ($1, $2, $3) RETURNING id";
    let values = [Value::Text(&new.account), Value::Int(Some(new.amount)), Value::Text(key)];
    let id = match tx.fetch(insert, &values).await?.as_deref() {
        Some([Cell::Int(id), ..]) => *id,
        _ => return Err(Stopped::unknown("the charge has no number")),
    };
    let charge =
        Charge { id, account: new.account.clone(), amount: new.amount, idempotency_key: key.to_owned() };
    Ok(Outcome::succeeded(serde_json::to_vec(&charge)?))
}

async fn place_order(mut tx: impl SqlTransaction, order: &str) -> Result<Outcome, Stopped> {
    let row = [("id", Value::Text(order)), ("state", Value::Text("placed"))];
    Ok(Outcome::succeeded(match sql::insert(&mut tx, "orders", &row).await? {
        sql::Inserted::New => "placed",
        sql::Inserted::AlreadyThere => "was placed before",
    }))
}

async fn pay_order(mut tx: impl SqlTransaction, order: &str) -> Result<Outcome, Stopped> {
    let moved = sql::transition(&mut tx, ORDERS, Value::Text(order), "placed", "paid").await?;
    Ok(Outcome::succeeded(match moved {
        Transition::Changed => {
            let confirm = "UPDATE orders SET confirmations = confirmations + 1 WHERE id = $1";
            tx.fetch(confirm, &[Value::Text(order)]).await?;
            "paid"
        }
        Transition::AlreadyThere => "was paid before",
        Transition::Illegal => "illegal",
    }))
}

async fn reserve(mut tx: impl SqlTransaction, new: &NewCharge, key: &str) -> Result<Outcome, Stopped> {
    let row = [
        ("id", Value::Text(key)),
        ("account", Value::Text(&new.account)),
        ("amount", Value::Int(Some(new.amount))),
        ("transfer", Value::Text("")),
    ];
    sql::insert(&mut tx, "payouts", &row).await?;
    Ok(Outcome::succeeded("reserved"))
}

async fn confirm(mut tx: impl SqlTransaction, key: &str, transfer: &str) -> Result<Outcome, Stopped> {
    let confirm = "UPDATE payouts SET transfer = $1 WHERE id = $2";
    tx.fetch(confirm, &[Value::Text(transfer), Value::Text(key)]).await?;
    Ok(Outcome::succeeded("confirmed"))
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the database cannot be reached").caused_by(error)
}

/// A step that is refused (it is still running elsewhere) is a reason to come back.
fn refused<T>(answer: Result<T, onceward::Refusal>) -> Result<T> {
    answer.map_err(|refusal| Error::new(ErrorKind::Unavailable, refusal.to_string()))
}
