//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), over connections to one file.
//!
//! SQLite has one writer at a time, so the transactions of this process queue here and not on the file.
//! Begin and commit, which may wait for the disk, run on blocking threads; the statements of the work in between are in
//! memory.

use std::error::Error as StdError;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::{Error, ErrorKind, Fault, Join, Result, StoreFuture, Swap, Swapped};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::errors::{failed, is_busy, uncommitted};
use super::store::connect;
use super::swap::{fetch, swap_now};
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};
use crate::sql::transactions::{FailureClass, PooledTransactions, TransactionDriver, over};

/// Idle connections that are kept for the next transactions.
const IDLE_MAX: usize = 4;

/// Begins transactions that a receipt commits with.
pub type SqliteTransactions = PooledTransactions<SqliteDriver>;

/// Transactions of rusqlite.
#[doc(hidden)]
#[derive(Clone)]
pub struct SqliteDriver {
    shared: Arc<ConnectionPool>,
}

struct ConnectionPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    writer: Arc<Semaphore>,
}

impl SqliteTransactions {
    /// Over the file that the engine's store is in.
    pub fn open(path: impl AsRef<Path>) -> Self {
        let shared = ConnectionPool {
            path: path.as_ref().to_owned(),
            idle: Mutex::default(),
            writer: Arc::new(Semaphore::new(1)),
        };
        Self(SqliteDriver { shared: Arc::new(shared) })
    }

    /// Runs something on a connection outside of any transaction, such as a query.
    pub async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R> {
        let shared = Arc::clone(&self.0.shared);
        blocking(move || {
            let mut connection = shared.connection()?;
            let result = work(&mut connection).map_err(failed);
            shared.keep(connection);
            result
        })
        .await
    }
}

impl ConnectionPool {
    fn connection(&self) -> Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| connect(&self.path, Duration::from_secs(10)), Ok)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_autocommit() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

impl std::fmt::Debug for SqliteDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteDriver").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

/// A transaction under way, with the write lock. When the last handle on it is dropped before the commit, it
/// is undone.
#[derive(Clone)]
pub struct SqliteTx(Arc<TxConnection>);

struct TxConnection {
    /// Taken when the transaction is over.
    connection: Mutex<Option<Connection>>,
    shared: Arc<ConnectionPool>,
    /// The permit of the one writer of this process.
    writer: Mutex<Option<OwnedSemaphorePermit>>,
}

impl SqliteTx {
    /// The connection. Not to be held while waiting for anything.
    ///
    /// Panics if the transaction is over: a handle must not outlive its work.
    pub fn lock(&self) -> SqliteGuard<'_> {
        self.open().expect("this transaction is over")
    }

    fn open(&self) -> Result<SqliteGuard<'_>> {
        let guard = self.0.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_some() { Ok(SqliteGuard(guard)) } else { Err(over()) }
    }

    /// The connection leaves the transaction, whatever handles there are.
    fn end(&self) {
        let connection = self.0.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connection) = connection {
            self.0.shared.keep(connection);
        }
        drop(self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// A connection inside a transaction.
pub struct SqliteGuard<'a>(MutexGuard<'a, Option<Connection>>);

impl Deref for SqliteGuard<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0.as_ref().expect("it was there when the guard was given")
    }
}

impl std::fmt::Debug for SqliteGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteGuard").finish_non_exhaustive()
    }
}

impl Drop for TxConnection {
    fn drop(&mut self) {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(connection) = connection {
            // If this fails, closing the connection rolls back.
            let _ = connection.execute_batch("ROLLBACK");
            self.shared.keep(connection);
        }
    }
}

impl std::fmt::Debug for SqliteTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTx").finish_non_exhaustive()
    }
}

impl Join for SqliteTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move { batch.iter().map(|swap| swap_now(&*self.open()?, swap)).collect() })
    }
}

impl SqlTransaction for SqliteTx {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch(&*self.open()?, statement, values).map_err(failed)
    }
}

impl TransactionDriver for SqliteDriver {
    type Tx = SqliteTx;

    /// With the write lock there is nothing to wait for.
    const LATE_MAX: Duration = Duration::ZERO;

    async fn open(&self, deadline: Instant) -> Result<SqliteTx, Fault> {
        let writer = Arc::clone(&self.shared.writer).acquire_owned();
        let writer = match timeout_at(deadline, writer).await {
            Ok(writer) => writer.expect("it is never closed"),
            Err(_) => return Err(Fault::Busy),
        };
        let shared = Arc::clone(&self.shared);
        let opened = blocking(move || {
            let connection = shared.connection()?;
            let patience = deadline.saturating_duration_since(Instant::now());
            connection.busy_timeout(patience).map_err(failed)?;
            if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
                return if is_busy(error.sqlite_error_code()) { Ok(None) } else { Err(failed(error)) };
            }
            let (connection, writer) = (Mutex::new(Some(connection)), Mutex::new(Some(writer)));
            Ok(Some(SqliteTx(Arc::new(TxConnection { connection, shared, writer }))))
        });
        opened.await.map_err(Fault::Failed)?.ok_or(Fault::Busy)
    }

    async fn is_whole(&self, tx: &SqliteTx) -> Result<bool> {
        Ok(!tx.open()?.is_autocommit())
    }

    async fn commit(&self, tx: &SqliteTx) -> Result<()> {
        let tx = tx.clone();
        blocking(move || {
            tx.open()?.execute_batch("COMMIT").map_err(uncommitted)?;
            tx.end();
            Ok(())
        })
        .await
    }

    async fn roll_back(&self, tx: &SqliteTx) {
        if let Ok(connection) = tx.open() {
            // If this fails, the connection is closed, which rolls back.
            let _ = connection.execute_batch("ROLLBACK");
        }
        tx.end();
    }

    /// Busy inside a transaction: others wrote first, and a retry may succeed.
    fn failure_class(&self, error: &(dyn StdError + 'static)) -> Option<FailureClass> {
        let error = error.downcast_ref::<rusqlite::Error>()?;
        Some(if is_busy(error.sqlite_error_code()) { FailureClass::Undone } else { FailureClass::Failed })
    }
}

async fn blocking<R: Send + 'static>(work: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| match panic.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "the runtime is shutting down").maybe_applied()),
    })
}
