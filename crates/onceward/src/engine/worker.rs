//! Workers: they run enqueued intents, and finish runs whose owner stopped, with the code registered for them.
//!
//! ```text
//! a look at what is due: waiting, or held under an expired lease
//!     no code for it here, or held when unknown      counted, never touched
//!     left a moment ago                              its caller's own retry comes first
//!     else claim it and run its code                 finished │ failed: waits for its next try, or is dead
//! ```
//!
//! Tries, pauses and the last error are in the receipt, so any number of workers in any number of processes share
//! one view of them. Of all who want the same intent, one gets it.

use std::future::{Future, poll_fn};
use std::hash::{DefaultHasher, Hasher};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use super::Onceward;
use super::future_set::FutureSet;
use super::group_commit::SendWhen;
use super::lease::Lease;
use super::pattern::Pattern;
use super::resume::resume;
use super::sealed::open;
use super::signal::Signal;
use super::timeout::{either, signalled, within};
use super::worker_builder::WorkerBuilder;
use super::worker_operations::{Operation, Operations, is_held_when_unknown};
use super::worker_report::{Worked, WorkerCounts, WorkerOptions};
use crate::caps::DueLookup;
use crate::error::Result;
use crate::id::Id;
use crate::receipt::{Receipt, Status, Waiting};
use crate::runtime::Runtime;
use crate::store::{Cursor, Due, Found, Page, Scan, ScanTarget, State};

/// Records looked at in one slice.
const SLICE_RECORDS: usize = 256;
/// Slices in one look. The next look continues after them.
const SLICES_MAX: usize = 64;
/// Shortest pause between two looks at a store that signals nothing, after one that found all there was to begin.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(2);

/// How long what is due for others is passed over.
const PASS_OVER: Duration = Duration::from_mins(1);
/// Only what has been due for that long is passed over: what becomes due later comes after it. A transaction that
/// enqueued something and took longer than this may commit it before that place, where the next whole look finds it.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// A worker that has found nothing for some time waits for this part of it until it looks again.
const IDLE_LOOKS: u32 = 8;

/// Does what was [enqueued](Onceward::enqueue), and finishes what was begun and left: intents whose owner died or
/// lost its lease, under a policy that lets them be run again, and that were not asked for since.
///
/// The code is given a [`Lease`](crate::Lease): its [input](crate::Lease::input) is what was asked, its [id](crate::Lease::id) says which intent
/// it is. [Steps](crate::Lease::step) that are done are skipped, as in any other run.
///
/// * An error, or a failure that may be tried again, puts the intent back to waiting, with a pause that grows; after
///   [`Policy::tries_max`](crate::Policy::tries_max) tries it is dead.
/// * Code that takes its process with it counts as a try as well.
/// * [`Stopped::suspend`](crate::Stopped::suspend) puts it back without counting.
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
    pub(super) onceward: Onceward,
    pub(super) operations: Arc<Operations>,
    options: WorkerOptions,
    /// Of the intents that are due, those whose hash is nearest to this are begun first.
    preferred: AtomicU64,
    /// Of the intents that were taken, those whose work has not ended.
    pub(super) working: Arc<AtomicUsize>,
    state: Mutex<WorkerState>,
}

#[derive(Default)]
pub(super) struct WorkerState {
    counts: WorkerCounts,
    /// What the last look at each of [`STATES`] found and did not begin.
    pub(super) left: [WorkerCounts; 2],
    /// Where the next look continues, if the last one did not reach the end.
    look_from: [Option<Cursor>; 2],
    /// What the looks at each of [`STATES`] pass over.
    passed_over: [PassedOver; 2],
    /// How the next look gets what waits.
    pub(super) by: LookBy,
    /// That the work is to stop.
    stopping: Arc<Signal>,
}

/// The beginning of what is due, if it is all for others: reading it again at every look would cost what is there.
#[derive(Clone, Default)]
struct PassedOver {
    /// Where it ends; `None` if nothing is passed over.
    end: Option<Cursor>,
    /// What it consists of.
    left: WorkerCounts,
    /// When it is read again.
    until: Duration,
}

pub(super) type WorkedOn = (Id, Result<Worked>);

/// How a worker gets what waits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LookBy {
    /// By taking it, in one step of the store's: see `worker_take.rs`.
    #[default]
    Taking,
    /// By pages that are read first and claimed afterwards: the store takes nothing, or there are intents that this
    /// worker must leave to others.
    Scanning,
}

/// What is looked at, in this order: leases that lapsed are few, and must not wait behind a backlog.
pub(super) const STATES: [State; 2] = [State::Held, State::Waiting];

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerLook {
    /// There was nothing to begin.
    Nothing,
    /// All there was has been begun.
    Begun,
    /// There may be more.
    MoreToBegin,
    /// There may be more, which others want too.
    Contended,
}

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
        let preferred = AtomicU64::new(random_point(&*onceward.inner.runtime));
        let operations = Arc::new(Operations::new(operations, options.grace));
        Self { onceward, operations, options, preferred, working: Arc::default(), state: Mutex::default() }
    }

    /// Runs one intent now, whether it is due or not: for a service that is told about it. Dropping it is as
    /// with [`run_once`](Self::run_once).
    pub async fn work_on(&self, id: &Id) -> Result<Worked> {
        let inner = &self.onceward.inner;
        let Some(receipt) = inner.load(id).await? else { return Ok(Worked::NothingToDo) };
        match (&receipt.status, receipt.due) {
            (Status::Waiting(Waiting { job: Some(_), .. }), _) | (Status::Held(_), Due::Over(_)) => {}
            // Without a job only the next ask knows what is to be done.
            _ => return Ok(Worked::NothingToDo),
        }
        let Some(Operation { policy, work }) = self.operations.code(id) else { return Ok(Worked::NoCode) };
        if is_held_when_unknown(&receipt, policy) {
            return Ok(Worked::NeedsSettlement);
        }
        let stopping = self.stopping();
        let work = |lease: Lease| work(lease.stopped_by(stopping));
        let completion = resume(inner, id, &receipt, policy.clone(), SendWhen::Now, work).await?;
        self.count(vec![(id.clone(), Ok(completion.clone()))]);
        Ok(completion)
    }

    /// Looks once for intents that are due, runs those that it may, and returns its counters.
    ///
    /// **Dropping** the returned future leaves the outcome of running intents unknown: by policy they are tried again,
    /// and this try does not count, or held.
    pub async fn run_once(&self) -> Result<WorkerCounts> {
        let mut running = FutureSet::new(self.onceward.inner.group_commit.clone());
        let never = pin!(std::future::pending());
        let mut never = Stop::new(never);
        let mut looked = Ok(WorkerLook::Contended);
        for _ in 0..SLICES_MAX {
            looked = self.search(&STATES, &mut running, &mut never).await;
            if !matches!(looked, Ok(WorkerLook::Contended)) {
                break;
            }
        }
        running.until_below(1).await;
        self.count(running.ready());
        looked.map(|_| self.counts())
    }

    /// Looks for intents repeatedly, until `stop` is ready; then nothing more is begun, what is running is told
    /// ([`Lease::stopping`](crate::Lease::stopping)), and waited for. A look that fails is logged and tried again. Dropping
    /// it is as with [`run_once`](Self::run_once).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let stopping = Arc::new(Signal::default());
        self.state().stopping = stopping.clone();
        let (mut stop, mut working) = (pin!(stop), pin!(self.work_until(stopping.past(0))));
        // Also while all that may run at once is running.
        poll_fn(|cx| {
            if stopping.count() == 0 && stop.as_mut().poll(cx).is_ready() {
                stopping.wake();
            }
            working.as_mut().poll(cx)
        })
        .await;
    }

    async fn work_until(&self, stop: impl Future<Output = ()>) {
        let inner = &self.onceward.inner;
        let stop = pin!(stop);
        let (mut stop, mut running) =
            (Stop::new(stop), FutureSet::new(self.onceward.inner.group_commit.clone()));
        let mut watch = inner.store.watch();
        let pause_min = match inner.store.caps().hints.due {
            DueLookup::Index => PAUSE_MIN.min(self.options.pause),
            // Every look costs what is kept.
            DueLookup::Walk => self.options.pause,
        };
        let (mut begun_at, mut lapsed_from) = (inner.now(), inner.now());
        while !stop.is_set().await {
            let signals = inner.enqueued.count();
            // Leases lapse rarely, and wait for their callers first: not every look has to look for them.
            let lapsed = inner.now() >= lapsed_from;
            if lapsed {
                lapsed_from = inner.now() + self.options.pause;
            }
            let pause = match self.look_or_take(lapsed, &mut running, &mut stop).await {
                Ok(WorkerLook::MoreToBegin) => {
                    begun_at = inner.now();
                    continue;
                }
                Ok(WorkerLook::Contended) => {
                    begun_at = inner.now();
                    // Another worker prefers the same: from now on this one prefers others.
                    self.preferred.store(random_point(&*inner.runtime), Ordering::Relaxed);
                    self.wait_for_capacity(&mut running).await;
                    continue;
                }
                Ok(WorkerLook::Begun) => {
                    begun_at = inner.now();
                    pause_min
                }
                // The longer nothing comes, the more rarely it looks.
                Ok(WorkerLook::Nothing) => {
                    (inner.now().saturating_sub(begun_at) / IDLE_LOOKS).clamp(pause_min, self.options.pause)
                }
                Err(error) => {
                    tracing::warn!(%error, "a look at what is to be done failed, trying again later");
                    self.options.pause
                }
            };
            let woken = inner.enqueued.past(signals);
            let something = either(either(woken, signalled(&*inner.runtime, &mut watch)), stop.set());
            running.beside(within(&*inner.runtime, pause, something)).await;
            self.count(running.ready());
        }
        running.until_below(1).await;
        self.count(running.ready());
    }

    /// Looks for leases that lapsed, if it is time to, and for what waits.
    async fn look_or_take<'a, S: Future<Output = ()>>(
        &'a self,
        lapsed: bool,
        running: &mut FutureSet<'a, WorkedOn>,
        stop: &mut Stop<'_, S>,
    ) -> Result<WorkerLook> {
        if self.state().by == LookBy::Scanning {
            let states = if lapsed { &STATES[..] } else { &STATES[1..] };
            return self.search(states, running, stop).await;
        }
        let looked =
            if lapsed { self.search(&STATES[..1], running, stop).await? } else { WorkerLook::Nothing };
        if looked == WorkerLook::Contended {
            return Ok(looked);
        }
        Ok(match self.take(running, stop).await? {
            WorkerLook::Nothing => looked,
            taken => taken,
        })
    }

    /// Waits until half of what may run at once has finished, so that the next look is worth its price; but not for
    /// long, if there is capacity for one.
    async fn wait_for_capacity<'a>(&'a self, running: &mut FutureSet<'a, WorkedOn>) {
        let concurrency = self.concurrency();
        running.until_below(concurrency).await;
        let half = async {
            running.until_below(concurrency.div_ceil(2)).await;
        };
        within(&*self.onceward.inner.runtime, PAUSE_MIN, half).await;
        self.count(running.ready());
    }

    /// Returns the counters of this worker.
    pub fn counts(&self) -> WorkerCounts {
        let WorkerState { counts, left: [held, waiting], .. } = *self.state();
        WorkerCounts {
            in_grace: waiting.in_grace + held.in_grace,
            needs_settlement: waiting.needs_settlement + held.needs_settlement,
            no_code: waiting.no_code + held.no_code,
            unreadable: waiting.unreadable + held.unreadable,
            ..counts
        }
    }

    /// Puts to work what is due and has code here.
    pub(super) async fn search<'a, S: Future<Output = ()>>(
        &'a self,
        states: &[State],
        running: &mut FutureSet<'a, WorkedOn>,
        stop: &mut Stop<'_, S>,
    ) -> Result<WorkerLook> {
        let mut begun = 0;
        for &state in states {
            let at = usize::from(state == STATES[1]);
            let (mut after, mut passed_over) = self.look_begins(at);
            let (mut seen, mut any_left) =
                (passed_over.as_ref().map_or_else(WorkerCounts::default, |passed| passed.left), false);
            for _ in 0..SLICES_MAX {
                let scan = Scan::new(ScanTarget::Due(Some(state)), SLICE_RECORDS).with_after(after.take());
                let page = running.beside(self.onceward.inner.scan(&scan)).await?;
                seen.unreadable += page.unreadable.len() as u64;
                let all_for_others = self.are_for_others(&page);
                let elsewhere = self.counts().taken_elsewhere;
                for (id, receipt) in self.nearest_first(page.found, &mut seen) {
                    let Some(operation) = self.operations.chosen(&id, &receipt, &mut seen) else {
                        any_left = true;
                        continue;
                    };
                    // As many as the concurrency allows are begun together, and claimed in one batch.
                    if running.len() >= self.concurrency() {
                        running.until_below(self.concurrency()).await;
                        self.count(running.ready());
                    }
                    if stop.is_set().await {
                        return Ok(WorkerLook::Begun);
                    }
                    if self.counts().taken_elsewhere > elsewhere {
                        // Other workers are at the same page: what is left of it is worth less than a new one.
                        return Ok(WorkerLook::Contended);
                    }
                    begun += 1;
                    running.add(self.work_on_found(id, receipt, operation));
                }
                after = page.next;
                match &mut passed_over {
                    Some(passed) if all_for_others && after.is_some() => {
                        (passed.end, passed.left) = (after.clone(), seen);
                    }
                    _ => self.pass_over(at, passed_over.take()),
                }
                if after.is_none() {
                    break;
                }
            }
            self.pass_over(at, passed_over);
            let mut locked = self.state();
            if state == State::Waiting && after.is_none() && !any_left && seen == WorkerCounts::default() {
                locked.by = LookBy::Taking;
            }
            (locked.look_from[at], locked.left[at]) = (after, seen);
        }
        Ok(if begun > 0 { WorkerLook::Begun } else { WorkerLook::Nothing })
    }

    /// Where a look begins, and what it has passed over by then; `None` if it does not begin with what is due first.
    fn look_begins(&self, at: usize) -> (Option<Cursor>, Option<PassedOver>) {
        let mut locked = self.state();
        let from = locked.look_from[at].take();
        let passed = &locked.passed_over[at];
        if from.is_some() && from != passed.end {
            return (from, None);
        }
        if passed.end.is_some() && self.onceward.inner.now() < passed.until {
            return (passed.end.clone(), Some(passed.clone()));
        }
        let until = self.onceward.inner.now() + PASS_OVER;
        (None, Some(PassedOver { until, ..PassedOver::default() }))
    }

    /// Remembers what the next looks pass over.
    fn pass_over(&self, at: usize, passed_over: Option<PassedOver>) {
        if let Some(passed_over) = passed_over {
            self.state().passed_over[at] = passed_over;
        }
    }

    /// Whether a page has nothing that this worker could ever begin as it is, and nothing can come before its end.
    fn are_for_others(&self, page: &Page) -> bool {
        // Where pages are not in the order of due times, what is new may be anywhere.
        self.onceward.inner.store.caps().hints.due == DueLookup::Index
            && page.found.iter().all(|(id, found)| {
                let settled = matches!(found.due, Due::Over(ago) if ago >= SETTLED_AFTER);
                settled && self.operations.code(id).is_none()
            })
    }

    async fn work_on_found(&self, id: Id, receipt: Receipt, operation: &Operation) -> WorkedOn {
        let (policy, stopping) = (operation.policy.clone(), self.stopping());
        let work = |lease: Lease| (operation.work)(lease.stopped_by(stopping));
        let completion = resume(&self.onceward.inner, &id, &receipt, policy, SendWhen::OnFlush, work).await;
        (id, completion)
    }

    /// What a page has, without the intents in flight in this process. Every worker has an order of its own, so that
    /// many of them share a page instead of all wanting its first record.
    fn nearest_first(&self, found: Vec<(Id, Found)>, seen: &mut WorkerCounts) -> Vec<(Id, Receipt)> {
        let mut nearest = Vec::with_capacity(found.len());
        for (id, found) in found {
            if self.onceward.inner.flights.find(&id).is_some() {
                continue;
            }
            match open(&found) {
                Ok(receipt) => nearest.push((self.distance_of(&id), id, receipt)),
                Err(error) => {
                    seen.unreadable += 1;
                    tracing::error!(?id, %error, "a receipt that is due cannot be read");
                }
            }
        }
        nearest.sort_by_key(|(distance, ..)| *distance);
        nearest.into_iter().map(|(_, id, receipt)| (id, receipt)).collect()
    }

    /// How far an intent is from what this worker prefers. Its hash is the same in every process.
    fn distance_of(&self, id: &Id) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(id.as_bytes());
        hasher.finish().wrapping_sub(self.preferred.load(Ordering::Relaxed)).cast_signed().unsigned_abs()
    }

    pub(super) fn concurrency(&self) -> usize {
        self.options.concurrency.max(1)
    }

    pub(super) fn count(&self, ready: Vec<WorkedOn>) {
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

    /// That the work is to stop, as it is given to what is begun now.
    pub(super) fn stopping(&self) -> Arc<Signal> {
        self.state().stopping.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of the random bits are enough")]
fn random_point(runtime: &dyn Runtime) -> u64 {
    runtime.random() as u64
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("operations", &self.operations).finish_non_exhaustive()
    }
}

/// A signal that is looked at now and then, and never again once it was there.
pub(super) struct Stop<'a, S> {
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

    pub(super) async fn is_set(&mut self) -> bool {
        let mut set = pin!(self.set());
        poll_fn(|cx| Poll::Ready(set.as_mut().poll(cx).is_ready())).await
    }
}
