//! Transactions over a [`MemoryStore`]: receipts and the caller's own writes change together or not at all.
//!
//! They behave like transactions of a database. Others see the writes of a transaction only after its commit, and
//! the records it wrote are locked until it ends:
//!
//! | call on a locked record | would lose against what is committed | would win |
//! |---|---|---|
//! | another transaction | is answered at once | waits, at most for its lock timeout |
//! | a swap of the store | is answered at once | waits until the transaction ends |
//! | a load or a scan | reads what is committed | |
//!
//! A deadlock of two transactions is detected when the second begins to wait: that one is rolled back and may be
//! retried. Work that holds a transaction and waits for a swap of the *store* on the same id waits for itself; as in
//! a database, that is not detected. Write through the transaction instead.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use onceward::{
    Age, Due, Error, ErrorKind, Fault, Found, Id, Join, Record, Result, Runtime, StoreFuture, Swap, Swapped,
    TokioRuntime, Transactions, Version,
};

use super::locks::{LockName, TransactionNumber};
use super::transaction_error::{TransactionError, Undone, over};
use super::{MemoryInner, MemoryState, MemoryStore};
use crate::kit;

/// How long a transaction that was [opened](MemoryTransactions::open) without a claim waits for others.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// Transactions over a [`MemoryStore`].
///
/// ```
/// # use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// # use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy};
/// # use onceward_stores::{MemoryStore, memory::{MemoryTransactions, MemoryTx}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> onceward::Result<()> {
/// let store = MemoryStore::new();
/// let transactions = MemoryTransactions::new(&store);
/// let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build()?;
/// let balance = Arc::new(AtomicU64::new(100));
///
/// let id = Id::new("tenant-7", "debit", "order-81")?;
/// let ask = Ask::new(id, Fingerprint::of(b"30"), Arc::new(Policy::http()));
/// for _ in 0..2 {
///     let balance = balance.clone();
///     let work = async |_: Lease, tx: MemoryTx| {
///         let balance = balance.clone();
///         tx.on_commit(move || {
///             balance.fetch_sub(30, Ordering::SeqCst);
///         })?;
///         Ok(Outcome::succeeded("debited"))
///     };
///     onceward.transact(&transactions, ask.clone(), work).await?;
/// }
/// assert_eq!(balance.load(Ordering::SeqCst), 70);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryTransactions {
    shared: Arc<MemoryInner>,
    runtime: Arc<dyn Runtime>,
}

/// A handle on a transaction under way. When all are dropped before the commit, it is undone.
#[derive(Clone)]
pub struct MemoryTx {
    handle: Arc<TransactionHandle>,
}

struct TransactionHandle {
    shared: Arc<MemoryInner>,
    runtime: Arc<dyn Runtime>,
    number: TransactionNumber,
    patience: Duration,
}

/// The open transactions.
#[derive(Default)]
pub(crate) struct OpenTransactions {
    last: TransactionNumber,
    by_number: HashMap<TransactionNumber, OpenTransaction>,
}

/// The writes and locks of an open transaction.
#[derive(Default)]
struct OpenTransaction {
    /// In the order of the ids, so that a commit is deterministic.
    writes: BTreeMap<Id, StagedWrite>,
    /// In the order in which they were taken.
    locks: Vec<LockName>,
    on_commit: Vec<Box<dyn FnOnce() + Send>>,
}

/// The change to a record that the commit applies.
struct StagedWrite {
    version: u64,
    created: u64,
    at_us: u64,
    record: Option<Record>,
}

impl MemoryTransactions {
    /// Transactions over the receipts of this store; they wait by tokio's clock.
    pub fn new(store: &MemoryStore) -> Self {
        Self::new_with_runtime(store, Arc::new(TokioRuntime::new()))
    }

    /// The same, with the clock and timers of this runtime: for simulations.
    pub fn new_with_runtime(store: &MemoryStore, runtime: Arc<dyn Runtime>) -> Self {
        Self { shared: Arc::clone(&store.shared), runtime }
    }

    /// Begins a transaction of the caller's own, to be ended with [`MemoryTx::commit`].
    pub fn open(&self) -> MemoryTx {
        self.open_with(LOCK_WAIT_MAX)
    }

    fn open_with(&self, patience: Duration) -> MemoryTx {
        let mut state = self.shared.state();
        let number = state.opened.last + 1;
        state.opened.last = number;
        state.opened.by_number.insert(number, OpenTransaction::default());
        drop(state);
        let (shared, runtime) = (Arc::clone(&self.shared), Arc::clone(&self.runtime));
        MemoryTx { handle: Arc::new(TransactionHandle { shared, runtime, number, patience }) }
    }
}

impl MemoryTx {
    /// Calls this at the commit, together with the receipts, and never without a commit. It must not
    /// panic, and must not wait for anything.
    pub fn on_commit(&self, write: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut state = self.handle.shared.state();
        let open = state.opened.by_number.get_mut(&self.handle.number).ok_or_else(over)?;
        open.on_commit.push(Box::new(write));
        Ok(())
    }

    /// Locks a name of the caller's choice, as a database locks a row that is written; waits for other transactions that
    /// hold it. Dropping the future leaves it unlocked.
    pub async fn lock(&self, name: &str) -> Result<()> {
        let (handle, name) = (&self.handle, LockName::Own(name.to_owned()));
        let locked = handle.until_free(|state| {
            if let Some(holder) = state.locks.other_holder(&name, handle.number) {
                return LockAttempt::Blocked(holder);
            }
            LockAttempt::Ready(state.lock(name.clone(), handle.number))
        });
        locked.await.and_then(|locked| locked).map_err(TransactionError::into_error)
    }

    /// Commits what was written.
    pub fn commit(self) -> Result<()> {
        self.handle.commit().map_err(TransactionError::into_error)
    }
}

/// Dropping the future skips the swaps that were not made yet.
impl Join for MemoryTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            check_order(batch)?;
            let mut answers = Vec::with_capacity(batch.len());
            for swap in batch {
                answers.push(self.handle.swap(swap).await.map_err(TransactionError::into_error)?);
            }
            Ok(answers)
        })
    }
}

/// A database may answer such a batch wrongly, or lock its ids in another order than others do. Tests are to notice it
/// here.
fn check_order(batch: &[Swap]) -> Result<()> {
    if batch.is_sorted_by(|a, b| a.id < b.id) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "a batch of swaps must be sorted by id and name no id twice"))
}

impl Transactions for MemoryTransactions {
    type Tx = MemoryTx;

    /// Dropping the future undoes what was begun.
    async fn begin(
        &self,
        claim: &Swap,
        _retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(MemoryTx, Swapped), Fault> {
        let tx = self.open_with(patience);
        let swapped = tx.handle.swap(claim).await.map_err(TransactionError::into_fault)?;
        Ok((tx, swapped))
    }

    async fn begin_bare(&self, patience: Duration) -> Result<MemoryTx, Fault> {
        Ok(self.open_with(patience))
    }

    /// Dropping the future undoes everything, or nothing once it was committed.
    async fn commit(&self, tx: MemoryTx, completion: &Swap) -> Result<(), Fault> {
        match tx.handle.swap(completion).await.map_err(TransactionError::into_fault)? {
            Swapped::Won(_) => tx.handle.commit().map_err(TransactionError::into_fault),
            Swapped::Lost(_) => {
                tx.handle.end();
                let detail =
                    "the transaction no longer holds the claim that it is to complete; it was rolled back";
                Err(Fault::Failed(Error::new(ErrorKind::Conflict, detail)))
            }
            Swapped::Failed(error) => {
                tx.handle.end();
                Err(Fault::Failed(error))
            }
        }
    }

    /// Dropping the future undoes everything, or nothing once it was committed.
    async fn commit_written(&self, tx: MemoryTx, id: &Id, written: Version) -> Result<(), Fault> {
        if tx.handle.has_written(id, written) {
            return tx.handle.commit().map_err(TransactionError::into_fault);
        }
        tx.handle.end();
        let detail = "the transaction no longer has the receipt that it began with; it was rolled back";
        Err(Fault::Failed(Error::new(ErrorKind::Conflict, detail)))
    }

    async fn rollback(&self, tx: MemoryTx) {
        tx.handle.end();
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        std::iter::successors(Some(error), |error| error.source()).any(<dyn std::error::Error>::is::<Undone>)
    }
}

/// The result of one attempt that needs a lock.
enum LockAttempt<T> {
    Ready(T),
    /// This transaction holds the lock.
    Blocked(TransactionNumber),
}

impl TransactionHandle {
    /// Retries until no other transaction blocks the attempt.
    async fn until_free<T>(
        &self,
        mut attempt: impl FnMut(&mut MemoryState) -> LockAttempt<T>,
    ) -> Result<T, TransactionError> {
        let (mut patience, guard) = (None, EndWait(self));
        let tried = poll_fn(|cx| {
            let mut state = self.shared.state();
            let holder = match attempt(&mut state) {
                LockAttempt::Ready(value) => return Poll::Ready(Ok(value)),
                LockAttempt::Blocked(holder) => holder,
            };
            if !state.locks.wait(self.number, holder) {
                return Poll::Ready(Err(TransactionError::Undone));
            }
            state.locks.wake_later(cx.waker());
            drop(state);
            let ended = patience.get_or_insert_with(|| self.runtime.sleep(self.patience)).as_mut().poll(cx);
            ended.map(|()| Err(TransactionError::TimedOut))
        });
        let tried = tried.await;
        drop(guard);
        if let Err(TransactionError::Undone) = tried {
            // As in a database: its locks are released at once.
            self.end();
        }
        tried
    }

    async fn swap(&self, swap: &Swap) -> Result<Swapped, TransactionError> {
        let now_us = self.shared.now_us();
        self.until_free(|state| self.try_swap(state, swap, now_us)).await.and_then(|swapped| swapped)
    }

    fn try_swap(
        &self,
        state: &mut MemoryState,
        swap: &Swap,
        now_us: u64,
    ) -> LockAttempt<Result<Swapped, TransactionError>> {
        let Some(open) = state.opened.by_number.get(&self.number) else {
            return LockAttempt::Ready(Err(TransactionError::Over));
        };
        let there = match open.writes.get(&swap.id) {
            Some(write) => write.there(),
            None => state.rows.there(&swap.id),
        };
        if !kit::is_as_seen(swap.seen, there.map(|there| there.version)) {
            let found = match open.writes.get(&swap.id) {
                Some(write) => write.found(now_us),
                None => state.rows.found(&swap.id, now_us),
            };
            return LockAttempt::Ready(Ok(Swapped::Lost(found)));
        }
        let writes = there.is_some() || swap.new.is_some();
        let name = LockName::Record(swap.id.clone());
        if writes && let Some(holder) = state.locks.other_holder(&name, self.number) {
            return LockAttempt::Blocked(holder);
        }
        let version = state.rows.next_version(now_us);
        if writes {
            if let Err(trouble) = state.lock(name, self.number) {
                return LockAttempt::Ready(Err(trouble));
            }
            let created = there.map_or(version, |there| there.created);
            let write = StagedWrite { version, created, at_us: now_us, record: swap.new.clone() };
            if let Some(open) = state.opened.by_number.get_mut(&self.number) {
                open.writes.insert(swap.id.clone(), write);
            }
        }
        LockAttempt::Ready(Ok(Swapped::Won(Version(version))))
    }

    /// Whether the commit puts a record there, under this version.
    fn has_written(&self, id: &Id, version: Version) -> bool {
        let state = self.shared.state();
        let open = state.opened.by_number.get(&self.number);
        let write = open.and_then(|open| open.writes.get(id));
        write.is_some_and(|write| write.record.is_some() && write.version == version.0)
    }

    /// Makes everything visible at once. The written records are locked, so no other write can conflict.
    fn commit(&self) -> Result<(), TransactionError> {
        let Some(mut open) = self.shared.state().opened.by_number.remove(&self.number) else {
            return Err(TransactionError::Over);
        };
        let on_commit = std::mem::take(&mut open.on_commit);
        let ending = ReleaseLocks { shared: &self.shared, locks: &open.locks };
        // Outside the mutex but under the locks: waiting transactions see both or neither.
        for write in on_commit {
            write();
        }
        let mut state = self.shared.state();
        for (id, write) in &open.writes {
            state.rows.put_written(id, write.record.as_ref(), write.version, write.created, write.at_us);
        }
        drop(state);
        drop(ending);
        self.shared.signals.announce(open.writes.keys());
        Ok(())
    }

    /// Undoes what was not committed. Does nothing to a transaction that is over.
    fn end(&self) {
        let open = self.shared.state().opened.by_number.remove(&self.number);
        if let Some(open) = open {
            drop(ReleaseLocks { shared: &self.shared, locks: &open.locks });
        }
    }
}

impl Drop for TransactionHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Releases the locks when dropped, also on a panic.
struct ReleaseLocks<'a> {
    shared: &'a MemoryInner,
    locks: &'a [LockName],
}

impl Drop for ReleaseLocks<'_> {
    fn drop(&mut self) {
        let wakers = self.shared.state().locks.release(self.locks);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Removes the wait from the deadlock detection when it ends or is given up.
struct EndWait<'a>(&'a TransactionHandle);

impl Drop for EndWait<'_> {
    fn drop(&mut self) {
        self.0.shared.state().locks.stop_waiting(self.0.number);
    }
}

impl MemoryState {
    /// Takes a lock that no other transaction holds.
    fn lock(&mut self, name: LockName, number: TransactionNumber) -> Result<(), TransactionError> {
        let Some(open) = self.opened.by_number.get_mut(&number) else { return Err(TransactionError::Over) };
        if self.locks.holder(&name).is_none() {
            open.locks.push(name.clone());
            self.locks.take(name, number);
        }
        Ok(())
    }
}

/// The version and the creation time of a record.
#[derive(Clone, Copy)]
pub(crate) struct CurrentRow {
    pub(crate) version: u64,
    pub(crate) created: u64,
}

impl StagedWrite {
    fn there(&self) -> Option<CurrentRow> {
        let Self { version, created, .. } = *self;
        self.record.as_ref().map(|_| CurrentRow { version, created })
    }

    fn found(&self, now_us: u64) -> Option<Found> {
        let record = self.record.as_ref()?;
        Some(Found::new(
            Version(self.version),
            record.state,
            Due::between(now_us, kit::due_us(self.at_us, record.due_in)),
            Age::between(now_us, self.created, self.version),
            record.bytes.clone(),
        ))
    }
}

impl fmt::Debug for MemoryTransactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransactions").finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTx").field("number", &self.handle.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "transactions_test.rs"]
mod tests;
