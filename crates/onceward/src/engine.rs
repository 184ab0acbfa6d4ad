//! The engine: everything between an ask and its answer. [`Onceward`] is what everyone uses.

mod acquire;
mod answer;
mod answer_without_run;
mod builder;
mod cache;
mod claim_guard;
mod counts;
mod crowd;
mod enqueue;
mod finish;
mod flight;
mod group;
mod inner;
mod keeper;
mod lease;
mod lease_transact;
mod limits;
mod owed;
mod pattern;
mod poller;
mod race;
mod reply;
mod resume;
mod run;
mod sealed;
mod settle;
mod signal;
mod sweep;
mod sync;
mod ticket;
mod transact;
mod wakers;
mod worker;
mod worker_builder;

use std::future::Future;
use std::sync::Arc;

pub use answer::{Answer, Completed, Recorded};
pub use builder::OncewardBuilder;
pub use cache::CACHE_AGE_MAX;
pub use counts::Counts;
pub use enqueue::Enqueued;
pub use inner::Rules;
pub use lease::Lease;
pub use limits::Limits;
pub use sweep::{Sweep, Swept};
pub use ticket::{Changed, Claimed, Ticket};
pub use worker::{Worked, Worker, WorkerCounts, WorkerOptions};
pub use worker_builder::WorkerBuilder;

use crate::ask::Ask;
use crate::error::Result;
use crate::id::Id;
use crate::join::{Join, Transactions};
use crate::outcome::{Outcome, Stopped};
use crate::policy::Policy;
use crate::receipt::{Closed, Fence, Receipt};
use crate::runtime::Task;
use crate::store::{Caps, Cursor, Page, Scan, ScanTarget, Store};
use crate::transition::Settlement;
use inner::Inner;

/// Runs each intent once and gives everyone the same answer. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Onceward {
    inner: Arc<Inner>,
}

impl Onceward {
    /// An engine over a store that is fit to be the record of truth, with everything at its default.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        Self::builder(store).build()
    }

    /// An engine with something other than the defaults.
    pub fn builder(store: Arc<dyn Store>) -> OncewardBuilder {
        OncewardBuilder::new(store)
    }

    /// Runs `work` once for the intent of `ask`, whoever asks however often, and gives its outcome.
    ///
    /// * The outcome is in the store before this returns ([`Completed::recorded`] names the one exception).
    /// * A duplicate gets the recorded outcome; while the first is running it waits or is refused.
    /// * If the lease is lost, the work is dropped, and the answer is that of whoever has it now.
    /// * **Dropping** the returned future before the work began gives the claim back. Dropping it
    ///   later leaves the effect in doubt, as does a **panic** in the work: by policy it is then held
    ///   for settlement or free to run again. An outcome that was reached is recorded all the same.
    ///
    /// ```
    /// # use onceward::*; use std::sync::Arc;
    /// # async fn example(onceward: Onceward, body: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Arc::new(Policy::http());
    /// let ask = Ask::new(Id::new("tenant-7", "charge", "order-81")?, Fingerprint::of(body), policy);
    /// let ran = onceward
    ///     .run(ask, async |lease| {
    ///         let key = lease.child("provider")?; // the same on every retry
    ///         Ok(Outcome::succeeded(format!("charged with {key}")))
    ///     })
    ///     .await?
    ///     .into_result()?;
    /// # Ok(()) }
    /// ```
    pub fn run<F, W>(&self, ask: Ask, work: F) -> impl Future<Output = Result<Answer>> + use<F, W>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        run::run(self.inner.clone(), ask, work)
    }

    /// The answer to an ask, if it is at hand in this process: what [`run`](Self::run) would replay at once.
    /// For callers who spare themselves the preparations of a run.
    pub fn cached_answer(&self, ask: &Ask) -> Option<Answer> {
        answer_without_run::cached_answer(&self.inner, ask)
    }

    /// The answer to an ask that needs no run of its own: a recorded one, or that of whoever runs it now,
    /// waited for as policy says. `None` if a run would have to begin. For callers that have no room for
    /// another run; nothing is claimed, so a run that begins meanwhile is nobody's fault.
    pub async fn answer_without_running(&self, ask: &Ask) -> Result<Option<Answer>> {
        answer_without_run::answer_without_running(&self.inner, ask).await
    }

    /// Runs a task beside everything else, where the engine runs its own: for callers that go away and
    /// leave a run behind. Where no runtime is left, the task is dropped.
    pub fn spawn(&self, task: Task) {
        self.inner.world.spawn(task);
    }

    /// Like [`run`](Self::run), in one transaction of the database that the store is in: receipt and
    /// business writes commit together or not at all.
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
    pub async fn transact<T, F, W>(&self, transactions: &T, ask: Ask, work: F) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        transact::transact(&self.inner, transactions, ask, work).await
    }

    /// Leaves an intent to a [`Worker`]: it waits with its [input](Ask::with_input) until one begins. An ask for it
    /// meanwhile runs it at once. Dropping the future may leave it enqueued.
    pub async fn enqueue(&self, ask: Ask) -> Result<Enqueued> {
        enqueue::enqueue(&self.inner, &ask).await
    }

    /// The same inside a transaction that the caller holds: it counts when that transaction commits. Call
    /// [`wake_workers`](Self::wake_workers) after the commit, or leave it to the workers' next look. After an error,
    /// roll back.
    pub async fn enqueue_in<J: Join + ?Sized>(&self, tx: &mut J, ask: &Ask) -> Result<Enqueued> {
        enqueue::enqueue_in(&self.inner, tx, ask).await
    }

    /// Goes on with an intent exactly as it was [found](Self::receipt): it waits, or its owner fell silent, and the
    /// rules let it be run again. If its receipt has changed meanwhile, nothing is begun. For callers that choose
    /// by themselves what a [`Worker`] would look for. Dropping the future is as for [`run`](Self::run).
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
        resume::resume(self.inner.clone(), id, found, policy.into(), work).await
    }

    /// Has the workers of this process look at once.
    pub fn wake_workers(&self) {
        self.inner.enqueued.wake();
    }

    /// Cancels an intent that waits for a worker: nobody will run it, and asks for it are refused until its
    /// retention ends. Nothing is changed if it does not wait.
    pub async fn cancel(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::Waiting, Closed::Cancelled, policy).await
    }

    /// Has an intent whose tries were used up tried again, from the first try on. Nothing is changed if it is not
    /// dead. Fails if one of its tries is in doubt: [settle](Self::settle) it first.
    pub async fn retry_dead(&self, id: &Id) -> Result<Changed> {
        settle::retry(&self.inner, id).await
    }

    /// Gives up an intent whose tries were used up: nobody will run it until its retention ends.
    pub async fn discard_dead(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::Dead, Closed::Discarded, policy).await
    }

    /// Closes an intent that has not begun, also one that nobody has asked for yet: a copy that comes late is
    /// refused. For undoing what never happened. Fails while it runs or its outcome is unknown; changes nothing if
    /// it is done.
    pub async fn close(&self, id: &Id, policy: &Policy) -> Result<Changed> {
        settle::close(&self.inner, id, settle::Closable::NotBegun, Closed::Undone, policy).await
    }

    /// Removes what a done receipt says, and keeps that it is done: a retry is told that the answer was not stored.
    /// Other processes may give it for [`CACHE_AGE_MAX`] more.
    pub async fn erase(&self, id: &Id) -> Result<Changed> {
        settle::erase(&self.inner, id).await
    }

    /// One page of the steps of an intent.
    pub async fn steps(&self, id: &Id, after: Option<Cursor>, limit: usize) -> Result<Page> {
        self.inner.scan(&Scan::new(ScanTarget::StepsOf(id.clone()), limit).with_after(after)).await
    }

    /// Claims inside a transaction that the caller holds. The claim counts when that transaction commits:
    /// first write the outcome with [`complete_in`](Self::complete_in). After an error, roll back.
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

    /// Claims an intent for a caller that cannot pass a closure. The caller renews the lease itself,
    /// and ends it with [`complete`](Self::complete), [`release`](Self::release) or
    /// [`mark_unknown`](Self::mark_unknown). Dropping the future gives the claim back.
    pub async fn claim(&self, ask: Ask) -> Result<Claimed> {
        ticket::claim(&self.inner, ask).await
    }

    /// Renews the lease of a claim, counted from now.
    pub async fn renew(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::Renew).await
    }

    /// Records the outcome of a claim. Calling it again with the same outcome changes nothing.
    pub async fn complete(&self, ticket: &Ticket, outcome: Outcome) -> Result<Changed> {
        let change = ticket::Change::complete(&self.inner, &outcome, ticket.policy());
        ticket::change(&self.inner, ticket, change).await
    }

    /// Gives a claim back: nothing happened, the next ask runs.
    pub async fn release(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::release()).await
    }

    /// Reports that the effect of a claim may or may not have happened.
    pub async fn mark_unknown(&self, ticket: &Ticket) -> Result<Changed> {
        ticket::change(&self.inner, ticket, ticket::Change::mark_unknown()).await
    }

    /// Says what became of an effect in doubt. `fence` names the run that was looked into, as
    /// [`receipt`](Self::receipt) gave it; if another run has taken its place, nothing is changed.
    pub async fn settle(
        &self,
        id: &Id,
        fence: Fence,
        settlement: &Settlement,
        policy: &Policy,
    ) -> Result<Changed> {
        settle::settle(&self.inner, id, fence, settlement, policy).await
    }

    /// The receipt of an intent as it is now.
    pub async fn receipt(&self, id: &Id) -> Result<Option<Receipt>> {
        self.inner.load(id).await
    }

    /// One page of receipts, undecoded: a damaged one must not hide the others.
    pub async fn list(&self, scan: &Scan) -> Result<Page> {
        self.inner.store.scan(scan).await
    }

    /// Removes what is past its retention and writes down what became unknown. Safe at any time and
    /// beside any traffic; call it now and then, or leave it to [`sweep_forever`](Self::sweep_forever).
    pub async fn sweep(&self, sweep: &Sweep) -> Result<Swept> {
        sweep::sweep(&self.inner, sweep).await
    }

    /// Sweeps every `pause`, until dropped. A sweep that fails is logged and tried again.
    pub async fn sweep_forever(&self, sweep: Sweep, pause: std::time::Duration) {
        loop {
            match self.sweep(&sweep).await {
                // More is due than one sweep may do: go on, after a breath for the traffic.
                Ok(Swept { finished: false, .. }) => self.inner.world.sleep(pause / 100).await,
                Ok(_) => self.inner.world.sleep(pause).await,
                Err(error) => {
                    tracing::warn!(%error, "a sweep failed, trying again later");
                    self.inner.world.sleep(pause).await;
                }
            }
        }
    }

    /// What this engine has seen so far.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    /// What its store can and cannot promise.
    pub fn caps(&self) -> Caps {
        self.inner.store.caps()
    }
}

impl std::fmt::Debug for Onceward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onceward").field("store", &self.caps().name).finish_non_exhaustive()
    }
}
