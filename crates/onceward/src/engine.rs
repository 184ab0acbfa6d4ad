//! The engine: everything between an ask and its answer. [`Onceward`] is its public type.

mod acquire;
mod answer;
mod answer_without_run;
mod batched_load;
mod builder;
mod cache;
mod claim_guard;
mod counts;
mod enqueue;
mod erase;
mod finish;
mod former_steps;
mod front;
mod front_follow;
mod future_set;
mod group_commit;
mod in_flight;
mod inner;
mod lease;
mod lease_renewal;
mod lease_transact;
mod limits;
mod list;
mod oneshot;
mod owed_releases;
mod pattern;
mod poller;
mod record_in;
mod resume;
mod run;
pub(crate) mod sealed;
mod settle;
mod signal;
mod sweep;
mod sync;
mod ticket;
mod timeout;
mod transact;
mod unknown_count;
mod unknown_log;
mod wakers;
mod worker;
mod worker_builder;
mod worker_operations;
mod worker_report;
mod worker_take;

use std::future::Future;
use std::sync::Arc;

pub use answer::{Answer, Completed, Recorded};
pub use builder::OncewardBuilder;
pub use cache::CACHE_AGE_MAX;
pub use counts::Counts;
pub use enqueue::Enqueued;
pub use erase::ErasedPage;
pub use inner::Rules;
pub use lease::Lease;
pub use limits::Limits;
pub use list::{ReceiptPage, Unreadable};
pub use sweep::{Sweep, Swept};
pub use ticket::{Changed, Claimed, Ticket};
pub use unknown_count::UnknownCount;
pub use worker::Worker;
pub use worker_builder::WorkerBuilder;
pub use worker_report::{Worked, WorkerCounts, WorkerOptions};

use crate::ask::Ask;
use crate::caps::{Caps, DueLookup};
use crate::error::Result;
use crate::id::Id;
use crate::join::{Join, Transactions};
use crate::outcome::{Outcome, Stopped};
use crate::policy::Policy;
use crate::receipt::{Closed, Fence, Receipt};
use crate::runtime::Task;
use crate::store::{Cursor, Filter, Scan, ScanTarget, Store};
use crate::transition::{Erase, Settlement};
use inner::Inner;

/// The engine: runs the work of each idempotency key once, and gives the recorded outcome to every retry. Cheap to
/// clone; all clones share one engine.
#[derive(Clone)]
pub struct Onceward {
    inner: Arc<Inner>,
}

impl Onceward {
    /// Creates an engine over a store, with default limits. Fails if the store can lose receipts or does not decide
    /// races atomically. For tests there is `onceward_stores::in_memory()`, an engine over a store that forgets.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        Self::builder(store).build()
    }

    /// Returns a builder for an engine with other limits, or over a store that can lose receipts.
    pub fn builder(store: Arc<dyn Store>) -> OncewardBuilder {
        OncewardBuilder::new(store)
    }

    /// Runs `work` once for the idempotency key of `ask`, and gives its outcome to this call and to every retry.
    ///
    /// * The outcome is in the store before this returns ([`Completed::recorded`] names the one exception).
    /// * A duplicate gets the recorded outcome. While the first call is running, a duplicate waits or is refused, by policy.
    /// * If the lease is lost, the work is dropped, and the answer is that of the run that took over.
    /// * **Dropping** the returned future before the work began releases the claim. Dropping it later leaves the
    ///   outcome unknown, as does a **panic** in the work: by policy it is then held until it is settled, or free to
    ///   run again. An outcome that was reached is recorded all the same.
    ///
    /// ```
    /// # use onceward::*;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let onceward = onceward_stores::in_memory();
    /// let body = br#"{"amount":12}"#;
    /// for replayed in [false, true] {
    ///     let ask = Ask::new(Id::new("tenant-7", "charge", "order-81")?, Fingerprint::of(body), Policy::http());
    ///     let charge = async |lease: Lease| {
    ///         let key = lease.child("provider")?; // the idempotency key of the call downstream: the same on every retry
    ///         Ok(Outcome::succeeded(format!("charged with {key}")))
    ///     };
    ///     let completed = onceward.run(ask, charge).await?.into_result()?;
    ///     assert_eq!(completed.replayed, replayed);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn run<F, W>(&self, ask: Ask, work: F) -> impl Future<Output = Result<Answer>> + use<F, W>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        run::run(self.inner.clone(), ask, work)
    }

    /// Returns the answer to an ask if it is in the memory of this process: what [`run`](Self::run) would replay without
    /// a round trip to the store. For callers that want to skip the preparations of a run.
    pub fn cached_answer(&self, ask: &Ask) -> Option<Answer> {
        answer_without_run::cached_answer(&self.inner, ask)
    }

    /// Returns the answer to an ask that needs no run of its own: a recorded one, or that of a run elsewhere, waited for
    /// as policy says. `None` if a run would have to begin. For callers that have no capacity for another run. Nothing
    /// is claimed, so a run may begin elsewhere meanwhile.
    pub async fn answer_without_running(&self, ask: &Ask) -> Result<Option<Answer>> {
        answer_without_run::answer_without_running(&self.inner, ask).await
    }

    /// Returns whether both are handles of the same engine.
    #[doc(hidden)]
    pub fn is_same_engine(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Spawns a task where the engine spawns its own: for callers that go away and leave a run behind. Where no
    /// runtime is left, the task is dropped.
    #[doc(hidden)]
    pub fn spawn(&self, task: Task) {
        self.inner.runtime.spawn(task);
    }

    /// Runs `work` once, like [`run`](Self::run), in one transaction of the database that the store is in: the
    /// receipt and the writes of the work commit together or not at all.
    ///
    /// * The unique index decides. A duplicate elsewhere waits on it, at most as long as its policy says,
    ///   and is then answered with the winner's outcome.
    /// * What the work writes through `tx` is undone with everything else if it ends without an outcome,
    ///   and the key is free again. What it does elsewhere is not: that belongs in a
    ///   [step](Lease::step).
    /// * If the database undoes the transaction in favour of another (a deadlock, a serialization
    ///   failure), the work is done again under the same attempt.
    /// * A commit whose answer was lost is looked up. The work is never done again unless it is certain
    ///   that it did not happen.
    /// * Inside the work of another transaction of this engine it is refused: it could wait for that one forever.
    /// * **Dropping** the returned future rolls back; dropped during the commit itself, the receipt tells.
    ///
    /// ```
    /// # use onceward::*; use std::sync::Arc; use std::sync::atomic::{AtomicUsize, Ordering};
    /// use onceward_stores::memory::{MemoryStore, MemoryTransactions, MemoryTx};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let transactions = MemoryTransactions::new(&store); // or of PostgreSQL, MySQL, SQLite, sqlx
    /// let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build()?;
    /// let charges = Arc::new(AtomicUsize::new(0));
    /// for replayed in [false, true] {
    ///     let ask = Ask::new(Id::new("tenant-7", "charge", "order-81")?, Fingerprint::of(b"12"), Policy::http());
    ///     let charge = async |_: Lease, tx: MemoryTx| {
    ///         let charges = charges.clone();
    ///         tx.on_commit(move || drop(charges.fetch_add(1, Ordering::SeqCst)))?; // the business write
    ///         Ok(Outcome::succeeded("charged"))                                    // and its receipt: one commit
    ///     };
    ///     let completed = onceward.transact(&transactions, ask, charge).await?.into_result()?;
    ///     assert_eq!(completed.replayed, replayed);
    /// }
    /// assert_eq!(charges.load(Ordering::SeqCst), 1);
    /// # Ok(()) }
    /// ```
    pub async fn transact<T, F, W>(&self, transactions: &T, ask: Ask, work: F) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        transact::transact(&self.inner, transactions, ask, None, work).await
    }

    /// Like [`transact`](Self::transact), for work whose outcome is known before it begins, such as handling a message:
    /// the receipt is written once, as done, before the work, in place of a claim and a completion. No other transaction sees it
    /// before the commit, duplicates wait on it as on a claim, and if the work ends without success it is rolled back
    /// with everything else.
    ///
    /// An ask with an [input](Ask::with_input), and one whose receipt is there already (its lease has expired, it
    /// waits), are claimed and completed as in `transact`.
    pub async fn transact_with_outcome<T, F, W>(
        &self,
        transactions: &T,
        ask: Ask,
        outcome: Outcome,
        mut work: F,
    ) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<(), Stopped>>,
    {
        let work = |lease, tx| {
            let (working, outcome) = (work(lease, tx), outcome.clone());
            async move { working.await.map(|()| outcome) }
        };
        transact::transact(&self.inner, transactions, ask, Some(&outcome), work).await
    }

    /// Enqueues an intent for a [`Worker`]: it waits with its [input](Ask::with_input) until one begins. A
    /// [`run`](Self::run) of it meanwhile runs it at once. Dropping the future may leave it enqueued.
    pub async fn enqueue(&self, ask: Ask) -> Result<Enqueued> {
        enqueue::enqueue(&self.inner, &ask).await
    }

    /// Enqueues an intent inside a transaction that the caller holds: it counts when that transaction commits. Call
    /// [`wake_workers`](Self::wake_workers) after the commit, or leave it to the workers' next look. After an error,
    /// roll back.
    pub async fn enqueue_in<J: Join + ?Sized>(&self, tx: &mut J, ask: &Ask) -> Result<Enqueued> {
        enqueue::enqueue_in(&self.inner, tx, ask).await
    }

    /// Resumes an intent whose receipt was [read](Self::receipt) as `found`: it waits, or its lease has expired, and the
    /// policies allow another run. If the receipt has changed meanwhile, nothing is begun. For callers that select
    /// intents themselves, as a [`Worker`] would. Dropping the future is as for [`run`](Self::run).
    pub async fn resume<F, W>(
        &self,
        id: &Id,
        found: &Receipt,
        policy: impl Into<Arc<Policy>>,
        work: F,
    ) -> Result<Worked>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        resume::resume(&self.inner, id, found, policy.into(), group_commit::SendWhen::Now, work).await
    }

    /// Wakes the workers of this process, to look for enqueued intents at once.
    pub fn wake_workers(&self) {
        self.inner.enqueued.wake();
    }

    /// Cancels an intent that waits for a worker: it is not run, and asks for it are refused until its retention ends.
    /// Changes nothing if it does not wait.
    pub async fn cancel(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::Waiting, Closed::Cancelled, policy).await
    }

    /// Retries an intent whose tries were used up, from the first try on. Changes nothing if it is not dead. Fails if one
    /// of its tries may have taken effect: [settle](Self::settle) it first. Fails too while this process knows the outcome
    /// and still has to write it.
    pub async fn retry_dead(&self, id: &Id) -> Result<Changed> {
        settle::retry(&self.inner, id).await
    }

    /// Discards an intent whose tries were used up: it is not run until its retention ends. Fails while this process knows
    /// the outcome and still has to write it.
    pub async fn discard_dead(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::Dead, Closed::Discarded, policy).await
    }

    /// Closes an intent that has not begun, also one that was never asked for: a late copy of the request is then refused.
    /// For undoing what never happened. Fails while it runs, if its outcome is unknown, and if one of its tries may have
    /// taken effect, as that of every dead intent may: settle it first. Changes nothing if it is done.
    pub async fn close(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::NotBegun, Closed::Undone, policy).await
    }

    /// Like [`close`](Self::close), if the receipt is still as it was [read](Self::receipt); `None` if there was none. For
    /// callers that decide by what they have read.
    #[doc(hidden)]
    pub async fn close_found(&self, id: &Id, found: Option<&Receipt>, policy: &Policy) -> Result<Changed> {
        settle::close_found(&self.inner, id, found, policy).await
    }

    /// Like [`close`](Self::close), inside a transaction that the caller holds: it counts when that transaction commits.
    /// After an error, roll back.
    pub async fn close_in<J: Join + ?Sized>(&self, tx: &mut J, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close_in(&self.inner, tx, id, policy).await
    }

    /// Forgets an unknown outcome that did not happen: removes the receipt, its input and its steps, if it is still as it
    /// was [read](Self::receipt). The same key is then a new intent, also for another request. To have the same request
    /// run again, [settle](Self::settle) it as not done. Fails if its outcome is not unknown, and while what was sent
    /// can still take effect.
    pub async fn forget_unknown(&self, id: &Id, found: &Receipt) -> Result<Changed> {
        settle::forget_unknown(&self.inner, id, found).await
    }

    /// Makes a delayed intent due now, whether it was enqueued with a delay, waits for its next try or is suspended:
    /// the next search of a worker finds it. Changes nothing if it does not wait, or is due already.
    pub async fn start_now(&self, id: &Id) -> Result<Changed> {
        settle::start_now(&self.inner, id).await
    }

    /// Erases what a receipt says (body, input, note) and keeps that it was done: a retry is told that the answer was
    /// not stored. Its steps are erased with it. Of an unknown outcome or a dead intent, input and note go and the state
    /// stays. Fails for what is running or waits to be run. Other processes may replay an answer from memory for
    /// [`CACHE_AGE_MAX`] more.
    ///
    /// [`Erase::with_reopen`] removes the receipt itself: the same intent may then run again.
    pub async fn erase(&self, id: &Id, erase: &Erase) -> Result<Changed> {
        erase::erase(&self.inner, id, erase).await
    }

    /// Erases one page of the receipts that match: all of a scope, of a key, of an operation. Looks at no more than
    /// `limit` records; continue with [`ErasedPage::next`] until there is none.
    pub async fn erase_matching(
        &self,
        filter: &Filter,
        erase: &Erase,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<ErasedPage> {
        erase::erase_matching(&self.inner, filter, erase, after, limit).await
    }

    /// Counts unknown outcomes, those of dead intents included, looking at no more than `records_max` records. For gauges: it reads the
    /// store, so it is right after a restart too, and the same in all processes.
    pub async fn count_unknown(&self, records_max: usize) -> Result<UnknownCount> {
        unknown_count::count(&self.inner, records_max).await
    }

    /// Reads one page of the steps of an intent.
    pub async fn steps(&self, id: &Id, after: Option<Cursor>, limit: usize) -> Result<ReceiptPage> {
        self.list(&Scan::new(ScanTarget::StepsOf(id.clone()), limit).with_after(after)).await
    }

    /// Claims an intent inside a transaction that the caller holds. The claim counts when that transaction commits: first
    /// write the outcome with [`complete_in`](Self::complete_in). After an error, roll back.
    pub async fn claim_in<J: Join + ?Sized>(&self, tx: &mut J, ask: &Ask) -> Result<Claimed> {
        transact::claim_in(&self.inner, tx, ask).await
    }

    /// Records the outcome of a claim made by [`claim_in`](Self::claim_in), in the same transaction.
    pub async fn complete_in<J: Join + ?Sized>(
        &self,
        tx: &mut J,
        ticket: &Ticket,
        outcome: &Outcome,
    ) -> Result<()> {
        transact::complete_in(&self.inner, tx, ticket, outcome).await
    }

    /// Records the same outcome for several intents inside a transaction that the caller holds, in one statement where
    /// the driver can: [`claim_in`](Self::claim_in) and [`complete_in`](Self::complete_in) for work that is done in this
    /// very transaction. In any order; an id that is named twice is [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    /// Returns for each whether it was recorded; `false` if it has a receipt already, of whatever kind, and nothing was
    /// changed: ask for that one by itself. Waits for other transactions that have written one of the ids. After an
    /// error, roll back.
    pub async fn record_in<J: Join + ?Sized>(
        &self,
        tx: &mut J,
        asks: &[Ask],
        outcome: &Outcome,
    ) -> Result<Vec<bool>> {
        record_in::record_in(&self.inner, tx, asks, outcome).await
    }

    /// Claims an intent for a caller that cannot pass a closure. The caller renews the lease itself,
    /// and ends it with [`complete`](Self::complete), [`release`](Self::release) or
    /// [`mark_unknown`](Self::mark_unknown). Dropping the future releases the claim.
    pub async fn claim(&self, ask: Ask) -> Result<Claimed> {
        ticket::claim(&self.inner, ask).await
    }

    /// Renews the lease of a claim, counted from now.
    pub async fn renew(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::Renew).await
    }

    /// Records the outcome of a claim. Calling it again with the same outcome changes nothing.
    pub async fn complete(&self, ticket: &Ticket, outcome: Outcome) -> Result<Changed> {
        let change = ticket::Change::complete(outcome, ticket.policy());
        ticket::change(&self.inner, ticket, change).await
    }

    /// Releases a claim: nothing happened, the next ask runs.
    pub async fn release(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::release()).await
    }

    /// Reports that the effect of a claim may or may not have happened.
    pub async fn mark_unknown(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::mark_unknown()).await
    }

    /// Settles an unknown outcome: records what became of the effect. `fence` names the run that was examined, as
    /// [`receipt`](Self::receipt) gave it; if another run has taken its place, nothing is changed. It is an error
    /// ([`ErrorKind::Conflict`](crate::ErrorKind::Conflict)) while this process knows the outcome and still has to write
    /// it.
    pub async fn settle(
        &self,
        id: &Id,
        fence: Fence,
        settlement: &Settlement,
        policy: &Policy,
    ) -> Result<Changed> {
        settle::settle(&self.inner, id, fence, settlement, policy).await
    }

    /// The intents whose outcome this process knows and the store did not take yet. They are written for as long as the
    /// process lives; after its end their outcomes are unknown. For the log at shutdown.
    pub fn unwritten_outcomes(&self) -> Vec<Id> {
        self.inner.flights.unrecorded()
    }

    /// Reads the receipt of an intent as it is now.
    pub async fn receipt(&self, id: &Id) -> Result<Option<Receipt>> {
        self.inner.load(id).await
    }

    /// Reads one page of receipts. One that cannot be read has an error of its own.
    pub async fn list(&self, scan: &Scan) -> Result<ReceiptPage> {
        self.inner.scan(scan).await.map(list::open_page)
    }

    /// Removes receipts past their retention, and marks outcomes of expired leases as unknown. Safe at any time and
    /// during any traffic; call it now and then, or leave it to [`sweep_forever`](Self::sweep_forever).
    pub async fn sweep(&self, sweep: &Sweep) -> Result<Swept> {
        sweep::sweep(&self.inner, sweep).await
    }

    /// Sweeps every `pause`, until dropped; ten times more rarely if the store finds what is due by
    /// [walking](crate::DueLookup::Walk) over everything. A sweep that fails is logged and tried again.
    pub async fn sweep_forever(&self, sweep: Sweep, pause: std::time::Duration) {
        let pause = match self.caps().hints.due {
            DueLookup::Index => pause,
            DueLookup::Walk => pause * 10,
        };
        loop {
            match self.sweep(&sweep).await {
                // More is due than one sweep may do: go on, after a short pause for other traffic.
                Ok(Swept { finished: false, .. }) => self.inner.runtime.sleep(pause / 100).await,
                Ok(_) => self.inner.runtime.sleep(pause).await,
                Err(error) => {
                    tracing::warn!(%error, "a sweep failed, trying again later");
                    self.inner.runtime.sleep(pause).await;
                }
            }
        }
    }

    /// Returns the counters of this engine.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    /// Returns the most bytes of an outcome that are stored; a larger one is recorded without them.
    pub fn body_bytes_max(&self) -> usize {
        self.inner.limits.body_bytes_max
    }

    /// Returns the most bytes of an input that are stored; a larger one is refused.
    pub fn input_bytes_max(&self) -> usize {
        self.inner.limits.input_bytes_max
    }

    /// Returns what the store promises.
    pub fn caps(&self) -> Caps {
        self.inner.store.caps()
    }
}

impl std::fmt::Debug for Onceward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onceward").field("store", &self.caps().name).finish_non_exhaustive()
    }
}
