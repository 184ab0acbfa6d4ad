//! The reference store: receipts in a map in this process, lost when the process ends.
//!
//! It uses no disk and no threads. A future that it returns is ready at once, with one exception: a swap that would
//! replace a record that an open [transaction](MemoryTransactions) has written waits until that transaction ends.

mod bit_set;
mod due_queue;
mod locks;
mod rows;
mod transaction_error;
mod transactions;

use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use onceward::{
    Caps, Choose, Clock, Id, Loaded, Onceward, Page, Promises, Result, Scan, State, Store, StoreFuture, Swap,
    Swapped, Watch, take_by_scan,
};

use self::locks::{LockName, Locks};
use self::rows::Rows;
use self::transactions::OpenTransactions;
use crate::kit::signals::Broadcaster;
use crate::kit::steady_clock::SteadyClock;
use crate::kit::{is_as_seen, now_us};

pub use self::transactions::{MemoryTransactions, MemoryTx};

/// Receipts in memory. Clones are handles on the same receipts.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<MemoryInner>,
}

struct MemoryInner {
    clock: Arc<dyn Clock>,
    state: Mutex<MemoryState>,
    signals: Broadcaster,
}

#[derive(Default)]
struct MemoryState {
    rows: Rows,
    locks: Locks,
    opened: OpenTransactions,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

/// An engine over an empty store in memory, for tests and examples: its receipts are lost when the process ends.
///
/// It has its own store. For an engine whose transactions are in memory too, or for two engines over one store, make
/// a [`MemoryStore`] and give clones of it to [`Onceward::builder`] and [`MemoryTransactions::new`].
///
/// ```
/// use onceward::{Ask, Fingerprint, Id, Outcome, Policy};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let onceward = onceward_stores::in_memory();
/// for replayed in [false, true] {
///     let ask = Ask::new(Id::new("test", "charge", "order-81")?, Fingerprint::of(b"12"), Policy::http());
///     let charge = async |_| Ok(Outcome::succeeded("charged"));
///     assert_eq!(onceward.run(ask, charge).await?.into_result()?.replayed, replayed);
/// }
/// # Ok(()) }
/// ```
pub fn in_memory() -> Onceward {
    let engine = Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile().build();
    engine.expect("the memory store decides races atomically, and it was accepted that it forgets")
}

impl MemoryStore {
    /// An empty store that goes by the machine's clock, but not by its jumps.
    pub fn new() -> Self {
        Self::new_with_clock(Arc::new(SteadyClock::starting_now()))
    }

    /// An empty store that goes by this clock.
    pub fn new_with_clock(clock: Arc<dyn Clock>) -> Self {
        let shared = MemoryInner { clock, state: Mutex::default(), signals: Broadcaster::default() };
        Self { shared: Arc::new(shared) }
    }
}

impl MemoryStore {
    /// Answers each swap as soon as no transaction blocks it. If the future is dropped, the swaps answered so far stay
    /// applied.
    async fn swap_around_transactions(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let mut answers: Vec<Option<Swapped>> = vec![None; batch.len()];
        poll_fn(|cx| {
            let (now_us, mut won, mut waits) = (self.shared.now_us(), Vec::new(), false);
            let mut state = self.shared.state();
            for (swap, answer) in batch.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
                if state.is_blocked(swap) {
                    waits = true;
                    continue;
                }
                let swapped = state.rows.swap(swap, now_us);
                if matches!(swapped, Swapped::Won(_)) {
                    won.push(&swap.id);
                }
                *answer = Some(swapped);
            }
            if waits {
                state.locks.wake_later(cx.waker());
            }
            drop(state);
            self.shared.signals.announce(won.into_iter());
            if waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        Ok(answers.into_iter().map(|answer| answer.expect("all are answered")).collect())
    }
}

impl MemoryState {
    /// Whether a swap would win against the committed record while a transaction has the record locked.
    fn is_blocked(&self, swap: &Swap) -> bool {
        let there = self.rows.there(&swap.id);
        let would_write = there.is_some() || swap.new.is_some();
        would_write
            && is_as_seen(swap.seen, there.map(|there| there.version))
            && self.locks.holder(&LockName::Record(swap.id.clone())).is_some()
    }
}

impl MemoryInner {
    /// A poisoned mutex is safe to use: no user code runs under the mutex.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        now_us(&*self.clock)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let mut state = self.shared.state();
        if !state.locks.is_empty() {
            drop(state);
            return Box::pin(self.swap_around_transactions(batch));
        }
        let now_us = self.shared.now_us();
        let answers: Vec<Swapped> = batch.iter().map(|swap| state.rows.swap(swap, now_us)).collect();
        drop(state);
        self.shared.signals.announce_won(batch, &answers);
        Box::pin(ready(Ok(answers)))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let now_us = self.shared.now_us();
        let state = self.shared.state();
        let found = ids.iter().map(|id| Ok(state.rows.found(id, now_us))).collect();
        drop(state);
        Box::pin(ready(Ok(found)))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        let now_us = self.shared.now_us();
        let page = self.shared.state().rows.scan(query, now_us);
        Box::pin(ready(page))
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        // Nothing comes in between: neither waits, unless a transaction has locked a record.
        take_by_scan(self, state, limit, choose)
    }

    /// Other engines on the same store are told of each write at once.
    fn watch(&self) -> Option<Watch> {
        Some(self.shared.signals.watch())
    }

    fn caps(&self) -> Caps {
        let promises = Promises::default().with_atomic(true).with_transactions(true);
        Caps::new("memory", promises)
    }
}
