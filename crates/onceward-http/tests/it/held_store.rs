//! A store that does not answer some calls for as long as the test holds it.

use std::sync::Arc;

use onceward::{Caps, Choose, Id, Loaded, Page, Scan, State, Store, StoreFuture, Swap, Swapped, Watch};
use onceward_stores::MemoryStore;
use tokio::sync::watch;

/// The calls that get no answer while the store is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Swaps,
    /// Those that ask for a receipt of this operation.
    LoadsOf(&'static str),
}

pub struct HeldStore {
    inner: Arc<MemoryStore>,
    holds: Holds,
    held: watch::Receiver<bool>,
}

impl HeldStore {
    /// An empty one, and what holds it.
    pub fn new(holds: Holds) -> (Arc<Self>, watch::Sender<bool>) {
        Self::over(Arc::new(MemoryStore::new()), holds)
    }

    pub fn over(inner: Arc<MemoryStore>, holds: Holds) -> (Arc<Self>, watch::Sender<bool>) {
        let (hold, receiver) = watch::channel(false);
        (Arc::new(Self { inner, holds, held: receiver }), hold)
    }

    async fn released(&self) {
        self.held.clone().wait_for(|held| !held).await.unwrap();
    }
}

impl Store for HeldStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            if self.holds == Holds::Swaps {
                self.released().await;
            }
            self.inner.swap(batch).await
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            if let Holds::LoadsOf(operation) = self.holds
                && ids.iter().any(|id| id.operation() == operation)
            {
                self.released().await;
            }
            self.inner.load(ids).await
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}
