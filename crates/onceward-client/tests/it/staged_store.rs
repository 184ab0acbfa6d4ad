//! A wrapper around a shared store that delays writes, holds one write or its reply, or fails as if the process had
//! died.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Caps, Choose, Error, Id, Loaded, Page, Result, Scan, State, Store, StoreFuture, Swap, Swapped, Watch,
};
use tokio::sync::{Notify, Semaphore};

pub struct StagedStore {
    /// Taken away when the client dies.
    store: Mutex<Option<Arc<dyn Store>>>,
    late: Duration,
    held: Option<Held>,
    /// Whether the next one that fits waits at the gate.
    armed: AtomicBool,
    gate: Semaphore,
    at_gate: Notify,
}

/// What waits at the gate until it is opened; the first one only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A claim, before it is written.
    Claim,
    /// The answer to a claim, which is written.
    ClaimReply,
    /// A removal, before it happens.
    Removal,
}

impl StagedStore {
    pub fn over(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Mutex::new(Some(store.clone())),
            late: Duration::ZERO,
            held: None,
            armed: AtomicBool::new(true),
            gate: Semaphore::new(0),
            at_gate: Notify::new(),
        }
    }

    /// Every write takes this much longer to arrive.
    pub fn late(mut self, late: Duration) -> Self {
        self.late = late;
        self
    }

    pub fn holding_a_claim(mut self) -> Self {
        self.held = Some(Held::Claim);
        self
    }

    pub fn holding_a_claim_reply(mut self) -> Self {
        self.held = Some(Held::ClaimReply);
        self
    }

    pub fn holding_a_removal(mut self) -> Self {
        self.held = Some(Held::Removal);
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

    async fn pass(&self, batch: &[Swap], held: Held) {
        let fits = |swap: &Swap| match (&swap.new, held) {
            (None, Held::Removal) => true,
            (Some(new), Held::Claim | Held::ClaimReply) => new.state == State::Held,
            _ => false,
        };
        if self.held == Some(held) && batch.iter().any(fits) && self.armed.swap(false, Ordering::SeqCst) {
            self.at_gate.notify_one();
            let _passed = self.gate.acquire().await.unwrap();
        }
    }
}

impl Store for StagedStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            self.pass(batch, Held::Claim).await;
            self.pass(batch, Held::Removal).await;
            if !self.late.is_zero() {
                tokio::time::sleep(self.late).await;
            }
            let swapped = self.store()?.swap(batch).await;
            self.pass(batch, Held::ClaimReply).await;
            swapped
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async { self.store()?.load(ids).await })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async { self.store()?.scan(query).await })
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        let mut caps = self.store().expect("it is asked before it dies").caps();
        // What goes through the gate must not go on when its caller has gone.
        caps.hints.batches_internally = false;
        caps
    }
}
