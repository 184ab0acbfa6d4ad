//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool of sqlx's.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, ErrorKind, Fault, Fut, Join, Result, Swap, Swapped};
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Pool, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::driver::{Call, Driver, Fate, cause, failed};
use super::join::fetch;
use crate::sql::CALL_MAX;
use crate::sql::join::{Cell, Dialect, Joined, SqlTransaction, Value};

/// Between two tries to begin while another connection writes.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Begins transactions in which receipts ride along, on a pool that the caller has already. It must lead to
/// the database that the engine's store is in.
#[derive(Debug)]
pub struct SqlxTransactions<DB: Driver> {
    pool: Pool<DB>,
    begin: SqlStr,
}

impl<DB: Driver> SqlxTransactions<DB> {
    /// Over a pool.
    pub fn new(pool: Pool<DB>) -> Self {
        Self { pool, begin: DB::BEGIN }
    }

    /// Sets the statement that begins a transaction, such as `BEGIN ISOLATION LEVEL SERIALIZABLE`. What the
    /// database then undoes in favour of another transaction is done anew. SQLite needs `BEGIN IMMEDIATE` or
    /// `BEGIN EXCLUSIVE`.
    pub fn begin_with(mut self, statement: impl SqlSafeStr) -> Self {
        self.begin = statement.into_sql_str();
        self
    }

    /// The pool, for everything else.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }
}

impl<DB: Driver> Clone for SqlxTransactions<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), begin: self.begin.clone() }
    }
}

impl<DB: Driver> From<Pool<DB>> for SqlxTransactions<DB> {
    fn from(pool: Pool<DB>) -> Self {
        Self::new(pool)
    }
}

/// A transaction under way. When the last handle on it is dropped before the commit, the connection is
/// closed, which undoes it.
pub struct SqlxTx<DB: Driver>(Arc<Line<DB>>);

/// A connection that goes back to its pool only if the end of the transaction is known.
struct Line<DB: Driver>(Mutex<Option<PoolConnection<DB>>>);

impl<DB: Driver> SqlxTx<DB> {
    /// The connection, for one statement after the other: `query.execute(&mut *tx.lock().await)`. A
    /// transaction begun on it is a savepoint in this one.
    ///
    /// Panics if the transaction is over: a handle must not outlive its work.
    pub async fn lock(&self) -> SqlxGuard<'_, DB> {
        let guard = self.0.0.lock().await;
        assert!(guard.is_some(), "this transaction is over");
        SqlxGuard(guard)
    }

    /// How deep in savepoints the connection is; 1 is in none.
    async fn depth(&self) -> Result<usize> {
        let mut connection = self.lock().await;
        let depth = DB::TransactionManager::get_transaction_depth(&connection);
        if depth <= 1 {
            return Ok(depth);
        }
        // A savepoint that was dropped is rolled back behind our back (SQLite, in a thread of its own): after an
        // answer to anything else it is over.
        connection.ping().await.map_err(|error| failed::<DB>(Call::Inside, error))?;
        Ok(DB::TransactionManager::get_transaction_depth(&connection))
    }

    /// Its end is known: the connection may serve others.
    async fn end(&self) {
        drop(self.0.0.lock().await.take());
    }
}

impl<DB: Driver> Clone for SqlxTx<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: Driver> Drop for Line<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.get_mut().take() {
            drop(connection.detach());
        }
    }
}

impl<DB: Driver> std::fmt::Debug for SqlxTx<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlxTx").finish_non_exhaustive()
    }
}

/// A connection inside a transaction.
#[derive(Debug)]
pub struct SqlxGuard<'a, DB: Driver>(MutexGuard<'a, Option<PoolConnection<DB>>>);

impl<DB: Driver> Deref for SqlxGuard<'_, DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.0.as_ref().expect("it was there when the guard was given")
    }
}

impl<DB: Driver> DerefMut for SqlxGuard<'_, DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.0.as_mut().expect("it was there when the guard was given")
    }
}

impl<DB: Driver> SqlTransaction for SqlxTx<DB> {
    fn dialect(&self) -> Dialect {
        DB::DIALECT
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch::<DB>(&mut *self.lock().await, statement, values).await
    }
}

impl<DB: Driver> Join for SqlxTx<DB> {
    fn swap<'a>(&'a mut self, swap: &'a Swap) -> Fut<'a, Swapped> {
        Box::pin(async move { Joined(self).swap(swap).await })
    }
}

impl<DB: Driver> onceward::Transactions for SqlxTransactions<DB> {
    type Tx = SqlxTx<DB>;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        _: Option<Duration>,
        patience: Duration,
    ) -> Result<(SqlxTx<DB>, Swapped), Fault> {
        let deadline = Instant::now() + patience;
        let connection = self.pool.acquire().await.map_err(unconnected::<DB>)?;
        // From here on, who does not come to an end is given up with its connection.
        let mut tx = SqlxTx(Arc::new(Line(Mutex::new(Some(connection)))));
        loop {
            let begun = {
                let mut connection = tx.lock().await;
                timeout_at(deadline, DB::TransactionManager::begin(&mut connection, Some(self.begin.clone())))
                    .await
            };
            match begun {
                Ok(Ok(())) => break,
                // SQLite's own patience may be shorter than ours.
                Ok(Err(error)) if DB::said(&error).fate == Fate::Busy && Instant::now() < deadline => {
                    sleep(BUSY_PAUSE).await;
                }
                Ok(Err(error)) => return Err(fault::<DB>(failed::<DB>(Call::Inside, error))),
                Err(_) => return Err(Fault::Busy),
            }
        }
        match timeout_at(deadline, tx.swap(claim)).await {
            Ok(Ok(swapped)) => Ok((tx, swapped)),
            Ok(Err(error)) => {
                self.rollback(tx).await;
                Err(fault::<DB>(error))
            }
            Err(_) => Err(Fault::Busy),
        }
    }

    async fn commit<'a>(&'a self, mut tx: SqlxTx<DB>, completion: &'a Swap) -> Result<(), Fault> {
        let completed = timeout(CALL_MAX, async {
            if tx.depth().await? == 1 { tx.swap(completion).await } else { Ok(Swapped::Lost(None)) }
        });
        match completed.await {
            Ok(Ok(Swapped::Won(_))) => {}
            Ok(Ok(Swapped::Lost(_))) => {
                self.rollback(tx).await;
                return Err(Fault::Failed(gone()));
            }
            Ok(Err(error)) => {
                self.rollback(tx).await;
                return Err(fault::<DB>(error));
            }
            Err(_) => return Err(Fault::Failed(timed_out())),
        }
        let committed = {
            let mut connection = tx.lock().await;
            timeout(CALL_MAX, DB::TransactionManager::commit(&mut connection)).await
        };
        match committed {
            Ok(Ok(())) => {
                tx.end().await;
                Ok(())
            }
            Ok(Err(error)) => Err(fault::<DB>(failed::<DB>(Call::Commit, error))),
            Err(_) => Err(Fault::Failed(timed_out().maybe_applied())),
        }
    }

    async fn rollback(&self, tx: SqlxTx<DB>) {
        let rolled_back = timeout(CALL_MAX, async {
            let mut connection = tx.lock().await;
            // Savepoints that the work has left open come first.
            while DB::TransactionManager::get_transaction_depth(&connection) > 0 {
                DB::TransactionManager::rollback(&mut connection).await?;
            }
            Ok::<(), sqlx::Error>(())
        });
        // Where this fails, the connection is closed, which does the same.
        if let Ok(Ok(())) = rolled_back.await {
            tx.end().await;
        }
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        // Busy in the middle of a transaction (SQLite): others came first, and the same again makes sense.
        cause(error).is_some_and(|error| DB::said(error).fate != Fate::Failed)
    }
}

/// A connection could not be had; nothing was sent.
fn unconnected<DB: Driver>(error: sqlx::Error) -> Fault {
    Fault::Failed(match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
            let detail = "the pool has no connection to give; is it large enough, and still open?";
            Error::new(ErrorKind::Unavailable, detail).caused_by(error)
        }
        error => failed::<DB>(Call::Inside, error),
    })
}

fn fault<DB: Driver>(error: Error) -> Fault {
    match cause(&error).map(|said| DB::said(said).fate) {
        Some(Fate::Busy) => Fault::Busy,
        Some(Fate::Undone) => Fault::Undone(error),
        Some(Fate::Failed) | None => Fault::Failed(error),
    }
}

fn gone() -> Error {
    let detail =
        "the work has ended the transaction that its receipt was to ride in, or left a part of it open";
    Error::new(ErrorKind::Conflict, detail)
}

fn timed_out() -> Error {
    Error::new(ErrorKind::Unavailable, format!("the database did not answer within {CALL_MAX:?}"))
}
