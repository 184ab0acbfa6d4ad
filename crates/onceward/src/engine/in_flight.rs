//! The intents in flight in this process, and the duplicates that wait for them here. Such a duplicate never
//! reaches the store.
//!
//! ```text
//! Claiming ──▶ Running ────────▶ Ended   the leader won the claim
//!     └──────▶ HeldElsewhere ──▶ Ended   another process has it; the leader waits for all
//! ```

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::answer::Completed;
use super::sync::Mutex;
use super::wakers::Wakers;
use crate::error::Error;
use crate::id::Id;
use crate::policy::{KeepInput, Policy};
use crate::receipt::{Attempt, Fence, Held, Receipt, Status};
use crate::store::{Age, Due, Version};
use crate::transition;

/// Enough that callers on a few dozen cores rarely meet on one lock.
const SHARDS: usize = 16;

pub(crate) struct Flights {
    /// By the hash that each id carries.
    shards: [Mutex<HashTable<Arc<Flight>>>; SHARDS],
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// One intent in flight in this process.
pub(crate) struct Flight {
    pub(crate) id: Id,
    pub(crate) policy: Arc<Policy>,
    pub(crate) attempt: Attempt,
    pub(crate) attempt_source: AttemptSource,
    state: Mutex<FlightState>,
    /// The run has an outcome that the store did not take yet.
    unrecorded: AtomicBool,
}

/// Who chose the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptSource {
    /// The engine: no other process can know it.
    ByEngine,
    /// The caller, who may use it again.
    ByCaller,
}

struct FlightState {
    phase: Phase,
    /// Counts the changes of phase, so that a waiter can tell whether it has seen this one.
    epoch: u64,
    wakers: Wakers,
    /// The one that does the work, to be told when its lease is lost.
    owner: Option<Waker>,
}

/// A run without duplicates is only ever claiming, running and ended with nothing to tell; what the others
/// need besides is boxed, so that they do not make every flight larger.
enum Phase {
    Claiming,
    HeldElsewhere {
        receipt: Box<Receipt>,
        seen_at: Duration,
    },
    Running(RunningLease),
    /// With the lease that was lost, if that is why.
    Ended {
        receipt: Option<Box<Receipt>>,
        lost: Option<Box<RunningLease>>,
    },
    /// With an outcome that was committed in a transaction of the work's own.
    Committed(Box<Completed>),
    Failed(Error),
}

/// A lease held by this process.
#[derive(Clone, Debug)]
pub(crate) struct RunningLease {
    /// What was claimed.
    pub(crate) held: Held,
    /// The version of the record now; renewals move it on.
    pub(crate) version: Version,
    /// When the lease ends at the earliest, by this process's clock: counted from when the store was
    /// asked, because it cannot have counted from earlier.
    pub(crate) lease_ends: Duration,
    /// When it is to be renewed.
    pub(crate) renew_at: Duration,
    pub(crate) renewal: Renewal,
}

/// Whether a lease is to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// When its time comes.
    Due,
    /// It is being renewed.
    InProgress,
    /// Never again: its ending is being written, and on a slow store renewals would move the version
    /// on under it time after time.
    Ended,
}

impl RunningLease {
    /// A lease that the store gave when asked at `sent_at`.
    pub(crate) fn new(held: Held, version: Version, sent_at: Duration, lease: Duration) -> Self {
        Self {
            held,
            version,
            lease_ends: sent_at + lease,
            renew_at: sent_at + lease / 3,
            renewal: Renewal::Due,
        }
    }

    /// A renewal has ended, with success or not.
    pub(crate) fn renewed(&mut self) {
        if self.renewal == Renewal::InProgress {
            self.renewal = Renewal::Due;
        }
    }
}

/// What a duplicate in this process sees of a flight.
pub(crate) enum FlightView {
    /// The store has not answered yet.
    Unsettled,
    /// It is running, here or in another process.
    Held(Receipt),
    /// Over; this is what the store holds now. `None`: look again.
    Ended(Option<Receipt>),
    /// Over, because the store failed. All waiters are told: asking it again, one after the
    /// other, would only make each of them wait for the same failure.
    Failed(Error),
}

pub(crate) enum FlightRole {
    /// The first ask here: it claims in the store for all.
    Leader(Arc<Flight>),
    Waiter(Arc<Flight>),
}

impl Flights {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashTable::new())),
            waiting: AtomicUsize::new(0),
            waiting_max,
        }
    }

    pub(crate) fn join(
        &self,
        id: &Id,
        policy: &Arc<Policy>,
        attempt: Attempt,
        attempt_source: AttemptSource,
    ) -> FlightRole {
        let mut shard = self.shard(id).lock();
        match shard.entry(id.seeded_hash(), |flight| flight.id == *id, |flight| flight.id.seeded_hash()) {
            Entry::Occupied(entry) => FlightRole::Waiter(entry.get().clone()),
            Entry::Vacant(entry) => {
                let flight = Arc::new(Flight {
                    id: id.clone(),
                    policy: policy.clone(),
                    attempt,
                    attempt_source,
                    state: Mutex::new(FlightState {
                        phase: Phase::Claiming,
                        epoch: 0,
                        wakers: Wakers::default(),
                        owner: None,
                    }),
                    unrecorded: AtomicBool::new(false),
                });
                entry.insert(flight.clone());
                FlightRole::Leader(flight)
            }
        }
    }

    /// The flight of an id, if this process has one in flight.
    pub(crate) fn find(&self, id: &Id) -> Option<Arc<Flight>> {
        self.shard(id).lock().find(id.seeded_hash(), |flight| flight.id == *id).cloned()
    }

    /// The ids whose outcome the store did not take yet.
    pub(crate) fn unrecorded(&self) -> Vec<Id> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            let flights = shard.lock();
            let unrecorded = flights.iter().filter(|flight| flight.unrecorded.load(Ordering::Relaxed));
            ids.extend(unrecorded.map(|flight| flight.id.clone()));
        }
        ids
    }

    /// Ends a flight: it leaves the map first, so that the next ask starts a new one.
    pub(crate) fn end(&self, flight: &Arc<Flight>, receipt: Option<Receipt>) {
        self.end_with(flight, |_| Phase::Ended { receipt: receipt.map(Box::new), lost: None });
    }

    /// Ends a flight with a receipt that is made of its lease, and only if a duplicate waits for it: an ask that comes
    /// later finds it in the store.
    pub(crate) fn end_awaited(&self, flight: &Arc<Flight>, receipt: impl FnOnce(&Held) -> Option<Receipt>) {
        self.end_with(flight, |state| {
            let receipt = match &state.phase {
                Phase::Running(running) if !state.wakers.is_empty() => receipt(&running.held).map(Box::new),
                _ => None,
            };
            Phase::Ended { receipt, lost: None }
        });
    }

    /// Ends a flight whose lease was lost, and tells its owner.
    pub(crate) fn lose(&self, flight: &Arc<Flight>, receipt: Option<Receipt>) {
        self.end_with(flight, |state| {
            let lost = match &state.phase {
                Phase::Running(running) => Some(Box::new(running.clone())),
                _ => None,
            };
            Phase::Ended { receipt: receipt.map(Box::new), lost }
        });
    }

    /// Ends a flight whose work has committed its outcome in a transaction of its own.
    pub(crate) fn commit(&self, flight: &Arc<Flight>, completed: Completed) {
        self.end_with(flight, |_| Phase::Committed(Box::new(completed)));
    }

    /// Ends a flight whose leader could not get an answer from the store.
    pub(crate) fn fail(&self, flight: &Arc<Flight>, error: Error) {
        self.end_with(flight, |_| Phase::Failed(error));
    }

    fn end_with(&self, flight: &Arc<Flight>, ended: impl FnOnce(&FlightState) -> Phase) {
        let removed = {
            let mut shard = self.shard(&flight.id).lock();
            let entry = shard.find_entry(flight.id.seeded_hash(), |other| Arc::ptr_eq(other, flight));
            entry.ok().map(|entry| entry.remove().0)
        };
        if removed.is_some() {
            flight.change(ended);
        }
    }

    /// The leases held here.
    pub(crate) fn running(&self) -> Vec<Arc<Flight>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().filter(|flight| flight.is_running()).cloned());
        }
        // In a fixed order: stores like it, and one seed then gives one history.
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Takes one of the bounded permits for waiters.
    pub(crate) fn waiter_permit(&self) -> Option<WaiterPermit<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = WaiterPermit(&self.waiting);
        (before < self.waiting_max).then_some(permit)
    }

    fn shard(&self, id: &Id) -> &Mutex<HashTable<Arc<Flight>>> {
        // Bits 32 to 35 of the hash: the table uses the lowest and the highest bits.
        let hash = usize::try_from(id.seeded_hash() >> 32).unwrap_or_default();
        &self.shards[hash % SHARDS]
    }
}

/// A permit for one waiter; dropping it returns the permit.
pub(crate) struct WaiterPermit<'a>(&'a AtomicUsize);

impl Drop for WaiterPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flight {
    /// The claim was won.
    pub(crate) fn run(&self, running: RunningLease) {
        self.change(|_| Phase::Running(running));
    }

    /// Another process has it; duplicates here are answered by this receipt.
    pub(crate) fn set_held_elsewhere(&self, receipt: Receipt, seen_at: Duration) {
        self.change(|_| Phase::HeldElsewhere { receipt: Box::new(receipt), seen_at });
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Running(_))
    }

    /// Whether the right to run is certainly held at this time. In a transaction its lock is the lease.
    pub(crate) fn is_held(&self, now: Duration) -> bool {
        match &self.state.lock().phase {
            Phase::Running(running) => now < running.lease_ends,
            Phase::HeldElsewhere { .. } => true,
            Phase::Claiming | Phase::Ended { .. } | Phase::Committed(_) | Phase::Failed(_) => false,
        }
    }

    pub(crate) fn running(&self) -> Option<RunningLease> {
        match &self.state.lock().phase {
            Phase::Running(running) => Some(running.clone()),
            _ => None,
        }
    }

    /// The lease under which an ending is to be written; it is not renewed any more. Also one that was
    /// lost a moment ago: if it has not been taken over, the receipt is still its owner's to write.
    pub(crate) fn finish(&self) -> Option<RunningLease> {
        self.finish_with(RunningLease::clone)
    }

    /// Bytes of the input that is kept with the outcome of the run.
    pub(crate) fn kept_input_bytes(&self) -> usize {
        if self.policy.keep_input() != KeepInput::WithReceipt {
            return 0;
        }
        let running = self.running();
        running.map_or(0, |running| transition::kept_input_bytes(running.held.job.as_ref(), &self.policy))
    }

    /// The same, looked at where it is: it is too large to be copied for every run.
    pub(crate) fn finish_with<T>(&self, look: impl FnOnce(&RunningLease) -> T) -> Option<T> {
        match &mut self.state.lock().phase {
            Phase::Running(running) => {
                running.renewal = Renewal::Ended;
                Some(look(running))
            }
            Phase::Ended { lost, .. } => lost.as_deref().map(look),
            _ => None,
        }
    }

    /// The run has an outcome, which is not in the store yet.
    pub(crate) fn set_unrecorded(&self) {
        self.unrecorded.store(true, Ordering::Relaxed);
    }

    /// Whether the run under a fence has an outcome that is still to be recorded.
    pub(crate) fn has_unrecorded_outcome(&self, fence: Fence) -> bool {
        self.unrecorded.load(Ordering::Relaxed) && self.fence() == Some(fence)
    }

    /// What the work has committed in a transaction of its own.
    pub(crate) fn committed(&self) -> Option<Completed> {
        match &self.state.lock().phase {
            Phase::Committed(completed) => Some(Completed::clone(completed)),
            _ => None,
        }
    }

    /// Whether the lease was lost to another owner, whose receipt was read.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Ended { receipt: Some(_), lost: Some(_) })
    }

    /// The fence of the lease that is held here, or was lost a moment ago.
    pub(crate) fn fence(&self) -> Option<Fence> {
        match &self.state.lock().phase {
            Phase::Running(running) => Some(running.held.claim.fence),
            Phase::Ended { lost, .. } => lost.as_ref().map(|lost| lost.held.claim.fence),
            _ => None,
        }
    }

    /// Changes what is known of the lease, if it is still held.
    pub(crate) fn with_running<T>(&self, change: impl FnOnce(&mut RunningLease) -> T) -> Option<T> {
        match &mut self.state.lock().phase {
            Phase::Running(running) => Some(change(running)),
            _ => None,
        }
    }

    /// Ready when the lease is lost. Only the owner may call this: it keeps one waker.
    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if let Phase::Ended { lost: Some(_), .. } = state.phase {
            return Poll::Ready(());
        }
        if !state.owner.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.owner = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// What a duplicate sees now, and the epoch of that view.
    pub(crate) fn view(&self, now: Duration) -> (FlightView, u64) {
        let state = self.state.lock();
        let view = match &state.phase {
            Phase::Claiming => FlightView::Unsettled,
            Phase::HeldElsewhere { receipt, seen_at } => {
                let mut receipt = Receipt::clone(receipt);
                if let Due::In(remaining) = receipt.due {
                    receipt.due =
                        Due::In(remaining.saturating_sub(now.saturating_sub(*seen_at)).max(REMAINING_MIN));
                }
                FlightView::Held(receipt)
            }
            Phase::Running(running) => FlightView::Held(Receipt {
                version: running.version,
                due: Due::In(running.lease_ends.saturating_sub(now).max(REMAINING_MIN)),
                age: Age::default(),
                status: Status::Held(running.held.clone()),
            }),
            Phase::Ended { receipt, .. } => FlightView::Ended(receipt.as_deref().cloned()),
            Phase::Committed(_) => FlightView::Ended(None),
            Phase::Failed(error) => FlightView::Failed(error.clone()),
        };
        (view, state.epoch)
    }

    /// Ready when the phase is another than at `epoch`. Dropping it frees its place in the list.
    pub(crate) fn changed_since(self: &Arc<Self>, epoch: u64) -> impl Future<Output = ()> + use<> {
        let mut slot = WakerSlot { flight: self.clone(), epoch, at: None };
        poll_fn(move |cx| {
            let WakerSlot { flight, at, .. } = &mut slot;
            let mut state = flight.state.lock();
            if state.epoch != epoch {
                *at = None;
                return Poll::Ready(());
            }
            *at = Some(state.wakers.put(*at, cx.waker()));
            Poll::Pending
        })
    }

    fn change(&self, phase: impl FnOnce(&FlightState) -> Phase) {
        let (wakers, owner) = {
            let mut state = self.state.lock();
            state.phase = phase(&state);
            state.epoch += 1;
            if state.wakers.is_empty() && state.owner.is_none() {
                return;
            }
            (std::mem::take(&mut state.wakers), state.owner.take())
        };
        owner.into_iter().chain(wakers).for_each(Waker::wake);
    }
}

/// A lease that this process still works under is never shown as over: only the store says that.
const REMAINING_MIN: Duration = Duration::from_millis(1);

/// One waiter's place in the list of its epoch; the next epoch has a list of its own.
struct WakerSlot {
    flight: Arc<Flight>,
    epoch: u64,
    at: Option<usize>,
}

impl Drop for WakerSlot {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let mut state = self.flight.state.lock();
            if state.epoch == self.epoch {
                state.wakers.remove(at);
            }
        }
    }
}
