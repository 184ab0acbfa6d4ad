//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool of `mysql_async`.

use std::error::Error as StdError;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Pool};
use onceward::{Fault, Join, Result, StoreFuture, Swap, Swapped};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::errors::{CallEffect, LOCK_WAIT_TIMEOUT, failed, is_worth_repeating, uncommitted, unconnected};
use super::store::{describe, parse, pool};
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value, swap_each};
use crate::sql::transactions::{FailureClass, PooledTransactions, TransactionDriver, over};
use crate::sql::{CALL_MAX, Options};

/// Begins transactions that a receipt commits with.
pub type MySqlTransactions = PooledTransactions<MySqlDriver>;

/// Transactions of `mysql_async`.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct MySqlDriver {
    pool: Pool,
    /// The name of the server in errors.
    server: Arc<str>,
}

impl MySqlTransactions {
    /// Over connections of their own to the database that an address names.
    pub fn open(url: &str, connections: usize) -> Result<Self> {
        let opts = parse(url)?;
        let server = describe(&opts).into();
        let pool = pool(opts, &Options { connections, ..Options::default() });
        Ok(Self(MySqlDriver { pool, server }))
    }

    /// Over a pool that the caller has already. It must lead to the database that the engine's store is in.
    pub fn from_pool(pool: Pool) -> Self {
        Self(MySqlDriver { pool, server: "MySQL".into() })
    }

    /// The pool, for everything else.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }
}

/// A transaction under way. When the last handle on it is dropped before the commit, it is undone.
#[derive(Clone, Debug)]
pub struct MySqlTx(Arc<Mutex<Option<Conn>>>);

impl MySqlTx {
    /// The connection, for one statement after the other.
    ///
    /// Panics if the transaction is over: a handle must not outlive its work.
    pub async fn lock(&self) -> MySqlGuard<'_> {
        self.open().await.expect("this transaction is over")
    }

    async fn open(&self) -> Result<MySqlGuard<'_>> {
        let guard = self.0.lock().await;
        if guard.is_some() { Ok(MySqlGuard(guard)) } else { Err(over()) }
    }

    /// The connection leaves the transaction, whatever handles there are. If it is not clean, the pool resets it.
    async fn end(&self) {
        drop(self.0.lock().await.take());
    }
}

/// A connection inside a transaction.
#[derive(Debug)]
pub struct MySqlGuard<'a>(MutexGuard<'a, Option<Conn>>);

impl Deref for MySqlGuard<'_> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.0.as_ref().expect("it was there when the guard was given")
    }
}

impl DerefMut for MySqlGuard<'_> {
    fn deref_mut(&mut self) -> &mut Conn {
        self.0.as_mut().expect("it was there when the guard was given")
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
        self.open().await?.fetch(statement, values).await
    }
}

impl Join for MySqlTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move { swap_each(&mut *self.open().await?, batch).await })
    }
}

impl TransactionDriver for MySqlDriver {
    type Tx = MySqlTx;

    /// The server counts whole seconds.
    const LATE_MAX: Duration = Duration::from_secs(2);

    async fn open(&self, deadline: Instant) -> Result<MySqlTx, Fault> {
        let refused = |error| Fault::Failed(failed(CallEffect::Reads, error));
        let mut conn = match timeout_at(deadline, self.pool.get_conn()).await {
            Ok(conn) => conn.map_err(|error| Fault::Failed(unconnected(&self.server, error)))?,
            Err(_) => return Err(Fault::Busy),
        };
        let patience = deadline.saturating_duration_since(Instant::now());
        let seconds = patience.as_millis().div_ceil(1_000).clamp(1, 3_600);
        let opened = timeout_at(deadline + CALL_MAX, async {
            conn.query_drop(format!("SET SESSION innodb_lock_wait_timeout = {seconds}")).await?;
            conn.query_drop("START TRANSACTION").await
        });
        match opened.await {
            Ok(opened) => opened.map_err(refused)?,
            Err(_) => return Err(Fault::Failed(super::errors::timed_out(CallEffect::Reads, CALL_MAX))),
        }
        Ok(MySqlTx(Arc::new(Mutex::new(Some(conn)))))
    }

    /// Always: a completion that finds another version than that of its claim loses.
    async fn is_whole(&self, _: &MySqlTx) -> Result<bool> {
        Ok(true)
    }

    async fn commit(&self, tx: &MySqlTx) -> Result<()> {
        let committed = tx.open().await?.query_drop("COMMIT").await;
        tx.end().await;
        committed.map_err(|error| {
            if is_worth_repeating(&error) { failed(CallEffect::Reads, error) } else { uncommitted(error) }
        })
    }

    async fn roll_back(&self, tx: &MySqlTx) {
        if let Ok(mut conn) = tx.open().await {
            // If this fails, the pool resets the connection, which rolls back.
            let _ = conn.query_drop("ROLLBACK").await;
        }
        tx.end().await;
    }

    fn failure_class(&self, error: &(dyn StdError + 'static)) -> Option<FailureClass> {
        Some(match error.downcast_ref::<mysql_async::Error>()? {
            mysql_async::Error::Server(said) if said.code == LOCK_WAIT_TIMEOUT => FailureClass::Busy,
            said if is_worth_repeating(said) => FailureClass::Undone,
            _ => FailureClass::Failed,
        })
    }
}
