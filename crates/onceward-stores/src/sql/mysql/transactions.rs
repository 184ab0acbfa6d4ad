//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Pool};
use onceward::{Error, ErrorKind, Fault, Fut, Join, Result, Swap, Swapped};
use tokio::sync::{Mutex, MutexGuard};

use super::fault::{Call, LOCK_WAIT_TIMEOUT, failed, is_worth_repeating, timed_out, uncommitted};
use super::join::swap_in;
use super::store::pool;
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};
use crate::sql::{CALL_MAX, Options};

/// Begins transactions in which receipts ride along.
#[derive(Clone, Debug)]
pub struct MySqlTransactions {
    pool: Pool,
}

impl MySqlTransactions {
    /// Over connections of their own to the database that an address names.
    pub fn open(url: &str, connections: usize) -> Result<Self> {
        Ok(Self::from_pool(pool(url, &Options { connections, ..Options::default() })?))
    }

    /// Over a pool that the caller has already. It must lead to the database that the engine's store is in.
    pub fn from_pool(pool: Pool) -> Self {
        Self { pool }
    }

    /// The pool, for everything else.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A transaction under way. When the last handle on it is dropped before the commit, it is undone.
#[derive(Clone, Debug)]
pub struct MySqlTx(Arc<Mutex<Conn>>);

impl MySqlTx {
    /// The connection, for one statement after the other.
    pub async fn lock(&self) -> MutexGuard<'_, Conn> {
        self.0.lock().await
    }
}

impl SqlTransaction for MySqlTx {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        self.0.lock().await.fetch(statement, values).await
    }
}

impl Join for MySqlTx {
    fn swap<'a>(&'a mut self, swap: &'a Swap) -> Fut<'a, Swapped> {
        Box::pin(async move { swap_in(&mut *self.0.lock().await, swap).await })
    }
}

impl onceward::Transactions for MySqlTransactions {
    type Tx = MySqlTx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        _: Option<Duration>,
        patience: Duration,
    ) -> Result<(MySqlTx, Swapped), Fault> {
        let limit = patience + CALL_MAX;
        let begun = tokio::time::timeout(limit, async {
            let refused = |error| Fault::Failed(failed(Call::Reads, error));
            let mut conn = self.pool.get_conn().await.map_err(refused)?;
            // The server counts whole seconds.
            let wait =
                format!("SET SESSION innodb_lock_wait_timeout = {}", patience.as_secs().clamp(1, 3_600));
            conn.query_drop(wait).await.map_err(refused)?;
            conn.query_drop("START TRANSACTION").await.map_err(refused)?;
            match swap_in(&mut conn, claim).await {
                Ok(swapped) => Ok((MySqlTx(Arc::new(Mutex::new(conn))), swapped)),
                Err(error) => {
                    // Should this fail too, the pool resets the connection, which does the same.
                    let _ = conn.query_drop("ROLLBACK").await;
                    Err(fault(error))
                }
            }
        });
        begun.await.unwrap_or_else(|_| Err(Fault::Failed(timed_out(Call::Reads, limit))))
    }

    async fn commit<'a>(&'a self, tx: MySqlTx, completion: &'a Swap) -> Result<(), Fault> {
        let committed = tokio::time::timeout(CALL_MAX, async {
            let mut conn = tx.0.lock().await;
            match swap_in(&mut *conn, completion).await {
                Ok(Swapped::Won(_)) => match conn.query_drop("COMMIT").await {
                    Ok(()) => Ok(()),
                    Err(error) if is_worth_repeating(&error) => {
                        Err(Fault::Undone(failed(Call::Reads, error)))
                    }
                    Err(error) => Err(Fault::Failed(uncommitted(error))),
                },
                Ok(Swapped::Lost(_)) => {
                    let _ = conn.query_drop("ROLLBACK").await;
                    let detail = "the work has ended the transaction that its receipt was to ride in";
                    Err(Fault::Failed(Error::new(ErrorKind::Conflict, detail)))
                }
                Err(error) => {
                    let _ = conn.query_drop("ROLLBACK").await;
                    Err(fault(error))
                }
            }
        });
        committed.await.unwrap_or_else(|_| Err(Fault::Failed(timed_out(Call::Writes, CALL_MAX))))
    }

    async fn rollback(&self, tx: MySqlTx) {
        let mut conn = tx.0.lock().await;
        // Should it fail or hang, the pool resets the connection, which does the same.
        let _ = tokio::time::timeout(CALL_MAX, conn.query_drop("ROLLBACK")).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        server_error(error).is_some_and(is_worth_repeating)
    }
}

/// Inside a transaction nothing has happened until its commit.
fn fault(error: Error) -> Fault {
    match server_error(&error) {
        Some(mysql_async::Error::Server(said)) if said.code == LOCK_WAIT_TIMEOUT => Fault::Busy,
        Some(said) if is_worth_repeating(said) => Fault::Undone(error),
        _ => Fault::Failed(error),
    }
}

/// What the driver said, if it is behind this error.
fn server_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a mysql_async::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(said) = error.downcast_ref::<mysql_async::Error>() {
            return Some(said);
        }
        next = error.source();
    }
    None
}
