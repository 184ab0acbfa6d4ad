//! Workers: they do what was enqueued, and finish what was begun and left, with code that was registered for it.
//!
//! ```text
//! a look at what is due: waiting, or held by somebody who fell silent
//!     no code for it here, or held when in doubt     counted, never touched
//!     left a moment ago                              its caller's own retry comes first
//!     else claim it and run its code                 finished │ failed: waits for its next try, or is dead
//! ```
//!
//! Tries, pauses and the last error are in the receipt, so any number of workers in any number of processes share
//! one view of them. Of all who want the same intent, one gets it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use super::Onceward;
use super::crowd::Crowd;
use super::lease::Lease;
use super::pattern::Pattern;
use super::race::{either, signalled, within};
use super::resume::resume;
use super::sealed::open;
use super::worker_builder::WorkerBuilder;
use crate::error::Result;
use crate::id::Id;
use crate::outcome::{Outcome, Stopped};
use crate::policy::{OnUnknown, Policy};
use crate::receipt::{Receipt, Status};
use crate::store::{Cursor, Due, Scan, ScanTarget, State};

/// Records looked at in one slice.
const SLICE_RECORDS: usize = 256;
/// Slices in one look. What lies behind is looked at by the next one.
const SLICES_MAX: usize = 64;
/// Shortest pause between two looks at a store that signals nothing.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Does what was [enqueued](Onceward::enqueue), and finishes what was begun and left: intents whose owner died or
/// lost touch, under a policy that lets them be run again, and that nobody has asked for since.
///
/// The code is given a [`Lease`]: its [input](Lease::input) is what was asked, its [id](Lease::id) says which intent
/// it is. [Steps](Lease::step) that are done are skipped, as in any other run.
///
/// * An error, or a failure that may be tried again, puts the intent back to waiting, with a pause that grows; after
///   [`Policy::tries_max`] tries it is dead.
/// * Code that takes its process with it counts as a try as well.
/// * [`Stopped::suspend`] puts it back without counting.
///
/// ```
/// # use onceward::*; use std::sync::Arc;
/// # async fn example(onceward: Onceward, stop: impl Future<Output = ()>) -> Result<()> {
/// let policy = Arc::new(Policy::queue());
/// let ask = Ask::new(Id::new("tenant-7", "payout", "81")?, Fingerprint::of(b"12"), policy.clone()).with_input("12");
/// onceward.enqueue(ask).await?;
///
/// let payout = async |lease: Lease| {
///     let amount = lease.input().cloned().unwrap_or_default();
///     let transfer = lease.step("transfer", async |_| Ok(Outcome::succeeded(amount))).await?;
///     Ok(transfer.into_result()?.outcome)
/// };
/// let worker = Worker::builder(onceward).with_operation("payout", policy, payout).build()?;
/// worker.run_until(stop).await;
/// # Ok(()) }
/// ```
pub struct Worker {
    onceward: Onceward,
    operations: Vec<(Pattern, Operation)>,
    options: WorkerOptions,
    state: Mutex<WorkerState>,
}

pub(super) struct Operation {
    pub(super) policy: Arc<Policy>,
    pub(super) work: Box<dyn Fn(Lease) -> Working + Send + Sync>,
}

pub(super) type Working = Pin<Box<dyn Future<Output = Result<Outcome, Stopped>> + Send>>;

#[derive(Default)]
struct WorkerState {
    counts: WorkerCounts,
    /// Where the next look goes on, if the last one did not come to the end.
    look_from: [Option<Cursor>; 2],
}

/// How many intents a worker runs at a time, and how often it looks for more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// Intents worked on at the same time.
    pub concurrency: usize,
    /// Longest time between two looks. What this process enqueues is begun at once; for the rest, a worker that
    /// finds nothing looks ever more rarely, up to this.
    pub pause: Duration,
    /// How long after its lease expired an abandoned intent is left to its caller's own retry.
    pub grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { concurrency: 8, pause: Duration::from_secs(1), grace: Duration::from_secs(10) }
    }
}

impl WorkerOptions {
    /// Sets how many intents are worked on at the same time.
    pub fn with_concurrency(mut self, intents: usize) -> Self {
        self.concurrency = intents;
        self
    }

    /// Sets the longest time between two looks.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how long an intent is left to its caller's own retry after its lease ended.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

/// What became of one intent that was to be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Worked {
    /// It has an outcome now.
    Finished,
    /// Its code did not get to one, for this reason. It waits for its next try.
    Failed(String),
    /// Its code will go on with it later.
    Suspended,
    /// Its tries are used up.
    Dead,
    /// Somebody else went on with it.
    TakenElsewhere,
    /// It must not be run again by itself; somebody has to settle it.
    NeedsSettlement,
    /// There is nothing to do: it is done, it is running, or there is no receipt of it.
    NothingToDo,
    /// There is no code for it here.
    NoCode,
}

/// What a worker has done, and what its last look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerCounts {
    /// Intents that got an outcome.
    pub finished: u64,
    /// Times that the code did not get to one; it is tried again later.
    pub failed: u64,
    /// Times that the code was suspended.
    pub suspended: u64,
    /// Intents whose tries were used up.
    pub dead: u64,
    /// Intents that somebody else went on with.
    pub taken_elsewhere: u64,
    /// At the last look: intents that were left a moment ago.
    pub in_grace: u64,
    /// At the last look: intents that must not be run again by themselves; somebody has to settle them.
    pub needs_settlement: u64,
    /// At the last look: intents that are due, of operations without code here. Steps are not counted: they go on
    /// with their intents.
    pub no_code: u64,
    /// At the last look: receipts that could not be read.
    pub unreadable: u64,
}

type Ready = (Id, Result<Worked>);

impl Worker {
    /// A worker over an engine, to be given its code.
    pub fn builder(onceward: Onceward) -> WorkerBuilder {
        WorkerBuilder::new(onceward)
    }

    pub(super) fn new(
        onceward: Onceward,
        operations: Vec<(Pattern, Operation)>,
        options: WorkerOptions,
    ) -> Self {
        Self { onceward, operations, options, state: Mutex::default() }
    }

    /// Runs one intent now, whether it is due or not: for a service that is told about it. Dropping it is as
    /// with [`run_once`](Self::run_once).
    pub async fn work_on(&self, id: &Id) -> Result<Worked> {
        let inner = &self.onceward.inner;
        let Some(receipt) = inner.load(id).await? else { return Ok(Worked::NothingToDo) };
        match (&receipt.status, receipt.due) {
            (Status::Waiting(_), _) | (Status::Held(_), Due::Over(_)) => {}
            _ => return Ok(Worked::NothingToDo),
        }
        let Some(Operation { policy, work }) = self.code(id) else { return Ok(Worked::NoCode) };
        if is_held_when_in_doubt(&receipt, policy) {
            return Ok(Worked::NeedsSettlement);
        }
        let completion = resume(inner.clone(), id, &receipt, policy.clone(), work).await?;
        self.count(vec![(id.clone(), Ok(completion.clone()))]);
        Ok(completion)
    }

    /// Looks once for intents that are due, runs those that it may, and returns its counters.
    ///
    /// **Dropping** the returned future leaves what is under way in doubt: by policy it is tried again, or held.
    pub async fn run_once(&self) -> Result<WorkerCounts> {
        let mut crowd = Crowd::new();
        let looked = self.look(&mut crowd, &mut Stop::new(pin!(std::future::pending()))).await;
        crowd.until_below(1).await;
        self.count(crowd.ready());
        looked.map(|_| self.counts())
    }

    /// Looks for intents repeatedly, until `stop` is ready; then nothing more is begun, and what is under way is
    /// finished. A look that fails is logged and tried again. Dropping it is as with [`run_once`](Self::run_once).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let inner = &self.onceward.inner;
        let stop = pin!(stop);
        let (mut stop, mut crowd) = (Stop::new(stop), Crowd::new());
        let mut watch = inner.store.watch();
        let pause_min = PAUSE_MIN.min(self.options.pause);
        let mut pause = pause_min;
        while !stop.is_set().await {
            let signals = inner.enqueued.count();
            match self.look(&mut crowd, &mut stop).await {
                Ok(begun) if begun > 0 => pause = pause_min,
                Ok(_) => pause = (pause * 2).min(self.options.pause),
                Err(error) => {
                    pause = self.options.pause;
                    tracing::warn!(%error, "a look at what is to be done failed, trying again later");
                }
            }
            let woken = inner.enqueued.past(signals);
            let something = either(either(woken, signalled(&*inner.world, &mut watch)), stop.set());
            crowd.beside(within(&*inner.world, pause, something)).await;
            self.count(crowd.ready());
        }
        crowd.until_below(1).await;
        self.count(crowd.ready());
    }

    /// Returns the counters of this worker.
    pub fn counts(&self) -> WorkerCounts {
        self.state().counts
    }

    /// Puts to work what is due and has code here; says how much was begun.
    async fn look<'a, S: Future<Output = ()>>(
        &'a self,
        crowd: &mut Crowd<'a, Ready>,
        stop: &mut Stop<'_, S>,
    ) -> Result<usize> {
        let (mut seen, mut begun) = (WorkerCounts::default(), 0);
        for (at, state) in [State::Waiting, State::Held].into_iter().enumerate() {
            let mut after = self.state().look_from[at].take();
            for _ in 0..SLICES_MAX {
                let of = ScanTarget::Due(Some(state));
                let scan = Scan::new(of, SLICE_RECORDS).with_after(after.take());
                let page = crowd.beside(self.onceward.inner.scan(&scan)).await?;
                seen.unreadable += page.unreadable.len() as u64;
                let found = page.found.into_iter().filter_map(|(id, found)| match open(&found) {
                    Ok(receipt) => Some((id, receipt)),
                    Err(error) => {
                        seen.unreadable += 1;
                        tracing::error!(?id, %error, "a receipt that is due cannot be read");
                        None
                    }
                });
                // In an order of its own, so that many workers do not all want the first one.
                for (id, receipt) in self.shuffled(found.collect()) {
                    let Some(operation) = self.chosen(&id, &receipt, &mut seen) else { continue };
                    crowd.until_below(self.options.concurrency.max(1)).await;
                    self.count(crowd.ready());
                    if stop.is_set().await {
                        return Ok(begun);
                    }
                    begun += 1;
                    crowd.add(self.work_on_found(id, receipt, operation));
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            self.state().look_from[at] = after;
        }
        let mut state = self.state();
        let WorkerCounts { finished, failed, suspended, dead, taken_elsewhere, .. } = state.counts;
        state.counts = WorkerCounts { finished, failed, suspended, dead, taken_elsewhere, ..seen };
        Ok(begun)
    }

    async fn work_on_found(&self, id: Id, receipt: Receipt, operation: &Operation) -> Ready {
        let inner = self.onceward.inner.clone();
        let completion = resume(inner, &id, &receipt, operation.policy.clone(), &operation.work).await;
        (id, completion)
    }

    fn shuffled(&self, mut found: Vec<(Id, Receipt)>) -> Vec<(Id, Receipt)> {
        let mut random = self.onceward.inner.world.random();
        for at in (1..found.len()).rev() {
            let other = usize::try_from(random % (at as u128 + 1)).unwrap_or_default();
            random = random.rotate_right(7) ^ (at as u128);
            found.swap(at, other);
        }
        found
    }

    fn code(&self, id: &Id) -> Option<&Operation> {
        let fitting = self.operations.iter().find(|(pattern, _)| pattern.matches(id.operation()));
        fitting.map(|(_, operation)| operation)
    }

    /// The code of an intent that may be worked on now; for the others, the reason is counted.
    fn chosen(&self, id: &Id, receipt: &Receipt, seen: &mut WorkerCounts) -> Option<&Operation> {
        let Some(operation) = self.code(id) else {
            seen.no_code += u64::from(!id.is_step());
            return None;
        };
        if is_held_when_in_doubt(receipt, &operation.policy) {
            seen.needs_settlement += 1;
            return None;
        }
        match (&receipt.status, receipt.due) {
            (Status::Waiting(waiting), _) => waiting.job.is_some().then_some(operation),
            (Status::Held(_), Due::Over(ago)) if ago >= self.options.grace => Some(operation),
            _ => {
                seen.in_grace += 1;
                None
            }
        }
    }

    fn count(&self, ready: Vec<Ready>) {
        for (id, completion) in ready {
            let counts = &mut self.state().counts;
            match completion {
                Ok(Worked::Finished) => counts.finished += 1,
                Ok(Worked::TakenElsewhere) => counts.taken_elsewhere += 1,
                Ok(Worked::Suspended) => counts.suspended += 1,
                Ok(Worked::Dead) => {
                    counts.dead += 1;
                    tracing::error!(?id, "the tries of an intent are used up, it is dead");
                }
                Ok(Worked::Failed(why)) => {
                    counts.failed += 1;
                    tracing::warn!(?id, %why, "an intent could not be finished, it is tried again later");
                }
                Ok(Worked::NeedsSettlement | Worked::NothingToDo | Worked::NoCode) => {}
                // Whatever became of it, the next look tells.
                Err(error) => tracing::warn!(?id, %error, "the store failed under an intent"),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that ended without a word is run again only if both its owner and this worker agree.
fn is_held_when_in_doubt(receipt: &Receipt, policy: &Policy) -> bool {
    match &receipt.status {
        Status::Held(held) => held.on_unknown == OnUnknown::Hold || policy.on_unknown() == OnUnknown::Hold,
        _ => false,
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let patterns: Vec<_> = self.operations.iter().map(|(pattern, _)| pattern).collect();
        f.debug_struct("Worker").field("operations", &patterns).finish_non_exhaustive()
    }
}

/// A signal that is looked at now and then, and never again once it was there.
struct Stop<'a, S> {
    signal: Pin<&'a mut S>,
    set: bool,
}

impl<'a, S: Future<Output = ()>> Stop<'a, S> {
    fn new(signal: Pin<&'a mut S>) -> Self {
        Self { signal, set: false }
    }

    async fn set(&mut self) {
        if !self.set {
            self.signal.as_mut().await;
            self.set = true;
        }
    }

    async fn is_set(&mut self) -> bool {
        let mut set = pin!(self.set());
        poll_fn(|cx| Poll::Ready(set.as_mut().poll(cx).is_ready())).await
    }
}
