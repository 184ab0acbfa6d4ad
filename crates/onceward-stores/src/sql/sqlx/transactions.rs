//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool of sqlx's.

use std::error::Error as StdError;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, ErrorKind, Fault, Join, Result, StoreFuture, Swap, Swapped};
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Pool, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout_at};

use super::driver::{CallStage, Driver, failed};
use super::join::fetch;
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value, swap_each};
use crate::sql::transactions::{FailureClass, PooledTransactions, TransactionDriver, over};

/// The pause between two attempts to begin while another connection writes.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Begins transactions that a receipt commits with, on a pool that the caller has already. It must lead to
/// the database that the engine's store is in.
pub type SqlxTransactions<DB> = PooledTransactions<SqlxDriver<DB>>;

/// Transactions of sqlx.
#[doc(hidden)]
#[derive(Debug)]
pub struct SqlxDriver<DB: Driver> {
    pool: Pool<DB>,
    begin: SqlStr,
}

impl<DB: Driver> SqlxTransactions<DB> {
    /// Over a pool.
    pub fn new(pool: Pool<DB>) -> Self {
        Self(SqlxDriver { pool, begin: DB::BEGIN })
    }

    /// Sets the statement that begins a transaction, such as `BEGIN ISOLATION LEVEL SERIALIZABLE`. What the
    /// database then undoes in favour of another transaction is done again. SQLite needs `BEGIN IMMEDIATE` or
    /// `BEGIN EXCLUSIVE`.
    pub fn with_begin(mut self, statement: impl SqlSafeStr) -> Self {
        self.0.begin = statement.into_sql_str();
        self
    }

    /// The pool, for everything else.
    pub fn pool(&self) -> &Pool<DB> {
        &self.0.pool
    }
}

impl<DB: Driver> Clone for SqlxDriver<DB> {
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
pub struct SqlxTx<DB: Driver>(Arc<SqlxConnection<DB>>);

/// A connection that goes back to its pool only if the end of the transaction is known.
struct SqlxConnection<DB: Driver>(Mutex<Option<PoolConnection<DB>>>);

impl<DB: Driver> SqlxTx<DB> {
    /// The connection, for one statement after the other: `query.execute(&mut *tx.lock().await)`. A
    /// transaction begun on it is a savepoint in this one.
    ///
    /// Panics if the transaction is over: a handle must not outlive its work.
    pub async fn lock(&self) -> SqlxGuard<'_, DB> {
        match self.open().await {
            Ok(guard) => guard,
            Err(over) => panic!("{over}"),
        }
    }

    async fn open(&self) -> Result<SqlxGuard<'_, DB>> {
        let guard = self.0.0.lock().await;
        if guard.is_some() { Ok(SqlxGuard(guard)) } else { Err(over()) }
    }

    /// How deep in savepoints the connection is; 1 is in none.
    async fn depth(&self) -> Result<usize> {
        let mut connection = self.open().await?;
        let depth = DB::TransactionManager::get_transaction_depth(&connection);
        if depth <= 1 {
            return Ok(depth);
        }
        // A savepoint that was dropped is rolled back in the background (SQLite, in a thread of its own): once
        // another statement is answered, that is finished.
        connection.ping().await.map_err(|error| failed::<DB>(CallStage::Inside, error))?;
        Ok(DB::TransactionManager::get_transaction_depth(&connection))
    }

    /// Its end is known: the connection may be reused.
    async fn end(&self) {
        drop(self.0.0.lock().await.take());
    }
}

impl<DB: Driver> Clone for SqlxTx<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: Driver> Drop for SqlxConnection<DB> {
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
        fetch::<DB>(&mut *self.open().await?, statement, values).await
    }
}

impl<DB: Driver> Join for SqlxTx<DB> {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(swap_each(self, batch))
    }
}

impl<DB: Driver> TransactionDriver for SqlxDriver<DB> {
    type Tx = SqlxTx<DB>;

    /// The limit on waiting for a row is not set on a pool of the caller.
    const LATE_MAX: Duration = Duration::ZERO;

    async fn open(&self, deadline: Instant) -> Result<SqlxTx<DB>, Fault> {
        let connection = match timeout_at(deadline, self.pool.acquire()).await {
            Ok(connection) => connection.map_err(unconnected::<DB>)?,
            Err(_) => return Err(Fault::Busy),
        };
        // From here on, a transaction that does not end is dropped with its connection.
        let tx = SqlxTx(Arc::new(SqlxConnection(Mutex::new(Some(connection)))));
        loop {
            let begun = {
                let mut connection = tx.lock().await;
                timeout_at(deadline, DB::TransactionManager::begin(&mut connection, Some(self.begin.clone())))
                    .await
            };
            match begun {
                Ok(Ok(())) => return Ok(tx),
                // SQLite's busy timeout may be shorter than this deadline.
                Ok(Err(error)) if DB::meaning(&error).failure_class == FailureClass::Busy => {
                    if Instant::now() >= deadline {
                        return Err(Fault::Busy);
                    }
                    sleep(BUSY_PAUSE).await;
                }
                Ok(Err(error)) => return Err(Fault::Failed(failed::<DB>(CallStage::Inside, error))),
                Err(_) => return Err(Fault::Busy),
            }
        }
    }

    async fn is_whole(&self, tx: &SqlxTx<DB>) -> Result<bool> {
        Ok(tx.depth().await? == 1)
    }

    async fn commit(&self, tx: &SqlxTx<DB>) -> Result<()> {
        let committed = DB::TransactionManager::commit(&mut *tx.open().await?).await;
        committed.map_err(|error| failed::<DB>(CallStage::Commit, error))?;
        tx.end().await;
        Ok(())
    }

    async fn roll_back(&self, tx: &SqlxTx<DB>) {
        let rolled_back = async {
            let Ok(mut connection) = tx.open().await else { return Ok(()) };
            // Savepoints that the work has left open come first.
            while DB::TransactionManager::get_transaction_depth(&connection) > 0 {
                DB::TransactionManager::rollback(&mut connection).await?;
            }
            Ok::<(), sqlx::Error>(())
        };
        // If this fails, the connection is closed, which rolls back.
        if rolled_back.await.is_ok() {
            tx.end().await;
        }
    }

    fn failure_class(&self, error: &(dyn StdError + 'static)) -> Option<FailureClass> {
        let failure_class = DB::meaning(error.downcast_ref()?).failure_class;
        Some(match (DB::DIALECT, failure_class) {
            // Busy inside a transaction: others wrote first, and a retry may succeed.
            #[cfg(feature = "sqlite")]
            (Dialect::Sqlite, FailureClass::Busy) => FailureClass::Undone,
            (_, failure_class) => failure_class,
        })
    }
}

/// The error if no connection was available; nothing was sent.
fn unconnected<DB: Driver>(error: sqlx::Error) -> Fault {
    Fault::Failed(match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
            let detail = "the pool has no connection to give; is it large enough, and still open?";
            Error::new(ErrorKind::Unavailable, detail).caused_by(error)
        }
        error => failed::<DB>(CallStage::Inside, error),
    })
}
