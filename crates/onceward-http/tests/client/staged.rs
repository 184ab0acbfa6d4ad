//! A client's sight of a store that others use too, staged: it looks too early, writes late, or dies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onceward::{Caps, Error, Found, Fut, Id, Page, Result, Scan, Store, Swap, Swapped};
use tokio::sync::{Notify, Semaphore};

/// The operation under which requests lie in a journal.
pub const REQUESTS: &str = "send#request";

pub struct Staged {
    /// Taken away when the client dies.
    store: Mutex<Option<Arc<dyn Store>>>,
    early: AtomicBool,
    held: Option<Held>,
    gate: Semaphore,
    at_gate: Notify,
}

/// What waits at the gate until it is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Requests that are put down, each by itself behind its claim.
    Puts,
    /// Requests that are taken away.
    Removals,
}

impl Staged {
    pub fn over(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Mutex::new(Some(store.clone())),
            early: AtomicBool::new(false),
            held: None,
            gate: Semaphore::new(0),
            at_gate: Notify::new(),
        }
    }

    /// Finds nothing at its first look, as if what is there had been written a moment later.
    pub fn early(mut self) -> Self {
        self.early = AtomicBool::new(true);
        self
    }

    pub fn holding_puts(mut self) -> Self {
        self.held = Some(Held::Puts);
        self
    }

    pub fn holding_removals(mut self) -> Self {
        self.held = Some(Held::Removals);
        self
    }

    pub fn ready(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// Waits until something waits at the gate.
    pub async fn at_gate(&self) {
        self.at_gate.notified().await;
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(1);
    }

    /// Nothing that its client still does reaches the store.
    pub fn die(&self) {
        self.store.lock().unwrap().take();
    }

    fn store(&self) -> Result<Arc<dyn Store>> {
        let dead = || Error::new(onceward::ErrorKind::Unavailable, "the process is dead");
        self.store.lock().unwrap().clone().ok_or_else(dead)
    }

    fn holds(&self, swap: &Swap) -> bool {
        let held = if swap.new.is_some() { Held::Puts } else { Held::Removals };
        swap.id.operation() == REQUESTS && self.held == Some(held)
    }
}

impl Store for Staged {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(async move {
            if batch.iter().any(|swap| self.holds(swap)) {
                self.at_gate.notify_one();
                let _passed = self.gate.acquire().await.unwrap();
            }
            self.store()?.swap(batch).await
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        if self.early.swap(false, Ordering::SeqCst) {
            return Box::pin(async { Ok(vec![None; ids.len()]) });
        }
        Box::pin(async { self.store()?.load(ids).await })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        Box::pin(async { self.store()?.scan(query).await })
    }

    fn caps(&self) -> Caps {
        // A request that may not ride is put down behind its claim.
        let caps = self.store().unwrap().caps();
        Caps { shared: self.held == Some(Held::Puts), ..caps }
    }
}
