//! The transaction handle for `tokio-postgres`.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Client, Object};
use onceward::{Id, Join, Result, Seen, StoreFuture, Swap, Swapped};

use super::ctid_cache::Ctid;
use super::errors::{CallEffect, failed};
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value, swap_each};
use crate::sql::transactions::over;

/// A transaction under way; use it like the client that it is. When the last handle on it is dropped before
/// the commit, the connection is closed, which undoes it.
///
/// Using the client panics when the transaction is over: a handle must not outlive its work.
#[derive(Clone)]
pub struct PostgresTx(Arc<TxConnection>);

/// A connection that goes back to its pool only if the end of the transaction is known and no handle can use
/// it any more.
struct TxConnection {
    connection: Option<Object>,
    /// Where the row of the claim is, if the transaction began with one that won, and in how long it falls due.
    claimed: Option<(Ctid, Option<Duration>)>,
    /// Its end has begun: what goes over the connection now is not a part of it.
    over: AtomicBool,
}

impl PostgresTx {
    pub(super) fn new(connection: Object) -> Self {
        Self(Arc::new(TxConnection {
            connection: Some(connection),
            claimed: None,
            over: AtomicBool::new(false),
        }))
    }

    /// The connection, also when the transaction is over.
    pub(super) fn connection(&self) -> &Object {
        self.0.connection.as_ref().expect("it is taken only at the end")
    }

    /// Keeps the ctid of the row of its claim. There are no other handles yet.
    pub(super) fn has_claimed(&mut self, ctid: Ctid, due_in: Option<Duration>) {
        let line = Arc::get_mut(&mut self.0).expect("it is not given out yet");
        line.claimed = Some((ctid, due_in));
    }

    pub(super) fn claimed(&self) -> Option<&(Ctid, Option<Duration>)> {
        self.0.claimed.as_ref()
    }

    /// Marks that the transaction is about to end.
    pub(super) fn close(&self) {
        self.0.over.store(true, Ordering::Release);
    }

    /// Its end is known: the connection may serve others.
    pub(super) fn end(self) {
        if let Ok(mut line) = Arc::try_unwrap(self.0) {
            drop(line.connection.take());
        }
    }

    fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }
}

impl Deref for PostgresTx {
    type Target = Client;

    fn deref(&self) -> &Client {
        assert!(!self.is_over(), "this transaction is over");
        self.connection()
    }
}

impl Drop for TxConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}

impl std::fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}

impl SqlTransaction for PostgresTx {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        if self.is_over() {
            return Err(over());
        }
        let connection = self.connection();
        let prepared =
            connection.prepare_cached(statement).await.map_err(|error| failed(CallEffect::Reads, error))?;
        super::join::fetch(&***connection, &prepared, values).await
    }
}

impl Join for PostgresTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            match creations(batch) {
                Some(ids) if !self.is_over() => super::join::create_in(self, batch, &ids).await,
                _ => swap_each(self, batch).await,
            }
        })
    }
}

/// The ids of a batch that one statement can write: several records of different ids, where nothing was seen.
fn creations(batch: &[Swap]) -> Option<Vec<&Id>> {
    let is_creation = |swap: &Swap| swap.seen == Seen::Absent && swap.new.is_some();
    if batch.len() < 2 || !batch.iter().all(is_creation) {
        return None;
    }
    let ids: Vec<&Id> = batch.iter().map(|swap| &swap.id).collect();
    let different: HashSet<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
    (different.len() == ids.len()).then_some(ids)
}
