//! The simulated store that all processes share, with its own clock and faults by seed.
//!
//! As a *server* it is outside: what a process has sent continues happening when the process is paused or
//! dead, and it has transactions ([`super::transactions`]). *Embedded* it ends with its only process,
//! and restarts with what was synced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Error, ErrorKind, Found, Id, Store, Swap, Swapped, codec};

use super::executor::{Executor, OUTSIDE, Process, lock};
use super::faults::{Fault, FaultRate};
use super::handle::Handle;
use super::history::{EventKind, Recorder, Tx};
use crate::random::Random;
use crate::reference::Book;

/// The store's clock when the simulation begins: far from that of any process.
const START_US: u64 = 1_700_000_000_000_000;

/// How many times as long a slow call takes.
const SLOW: u32 = 100;

/// A round trip longer than this is recorded for the checker, because it is long compared with the shortest lease.
pub(super) const LONG_TRIP: Duration = onceward::LEASE_MIN.checked_div(4).expect("four is not zero");

/// Where the store runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In a server of its own, shared by all processes.
    Server,
    /// In the only process. Answers are given once they are synced.
    Embedded,
    /// In the only process, answering before it syncs. The checker must catch it.
    EmbeddedUnsynced,
}

/// How the transactions of a server are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A record that a transaction has written is locked until its end.
    Locks,
    /// Nothing is locked. A transaction commits if nobody has written what it has written meanwhile.
    Optimistic,
}

/// How a simulated store behaves.
#[derive(Clone, Copy, Debug)]
pub struct StoreBehavior {
    /// Where it lives.
    pub home: Home,
    /// How its transactions are kept apart, if it has any.
    pub isolation: Isolation,
    /// How often something goes wrong.
    pub fault_rate: FaultRate,
    /// The longest way to the store and back, each.
    pub way_us_max: u64,
    /// How many of a thousand calls are answered on the spot.
    pub instant_per_thousand: u32,
    /// Longer than leases last.
    pub long: Duration,
    /// Whether it has signals of changes.
    pub signals: bool,
}

impl StoreBehavior {
    /// The longest that a call can take, there and back.
    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.way_us_max) * 2 * SLOW
    }
}

/// How long a write waits for a record that a transaction has locked.
const LOCK_WAIT: Duration = Duration::from_millis(4);
const LOCK_LOOK: Duration = Duration::from_millis(1);

/// The store itself; processes have handles.
pub struct SimStore {
    pub(super) executor: Arc<Executor>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) habits: StoreBehavior,
    calm: AtomicBool,
    /// Until when each process cannot reach it.
    away_until_us: Vec<AtomicU64>,
    pub(super) state: Mutex<StoreState>,
    /// What was changed, in order, if there are signals of it.
    pub(super) changes: Mutex<Vec<Id>>,
}

#[derive(Default)]
pub(super) struct StoreState {
    pub(super) now: Book,
    synced: Book,
    /// Which transaction has which record.
    pub(super) locks: BTreeMap<Id, Tx>,
}

/// The delays and the fault of one call.
pub(super) struct RoundTrip {
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) fault: Option<Fault>,
}

/// What can go wrong with a call, by whether the store can be reached.
type Chances = (fn(FaultRate, &mut Random) -> Option<Fault>, fn(&mut Random) -> Option<Fault>);

impl SimStore {
    /// An empty store.
    pub fn new(
        executor: &Arc<Executor>,
        recorder: &Arc<Recorder>,
        habits: StoreBehavior,
        processes: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(executor),
            recorder: Arc::clone(recorder),
            habits,
            calm: AtomicBool::new(false),
            away_until_us: (0..=processes).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::default(),
            changes: Mutex::default(),
        })
    }

    /// Cannot be reached by a process for this long.
    pub fn go_away(&self, number: usize, duration: Duration) {
        let until_us = self.executor.now_us() + super::executor::micros(duration);
        self.away_until_us[number].store(until_us, Ordering::Relaxed);
    }

    /// From here on nothing goes wrong any more.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// The way of one process to this store.
    pub fn handle(self: &Arc<Self>, process: Process) -> Arc<dyn Store> {
        Arc::new(Handle { store: Arc::clone(self), process })
    }

    /// The only process has died: what was not synced is lost. The one that opens the store next is alone with
    /// it, so what ends with its writer is over.
    pub fn reopen(&self, process: Process) {
        let mut state = lock(&self.state);
        let now_us = self.now_us();
        state.now = state.synced.clone();
        state.now.end_leases(now_us);
        let kept = state.now.all(now_us);
        let kept = kept.filter_map(|(id, found)| Some((id.clone(), Box::new(codec::decode(&found).ok()?))));
        let kept = kept.collect();
        drop(state);
        self.recorder.record(process, EventKind::Reopened { kept });
    }

    pub(super) fn now_us(&self) -> u64 {
        START_US + self.executor.now_us()
    }

    pub(super) fn plan_round_trip(&self, process: Process, (fault, fault_away): Chances) -> RoundTrip {
        let calm = self.calm.load(Ordering::Relaxed);
        let away =
            !calm && self.away_until_us[process.number].load(Ordering::Relaxed) > self.executor.now_us();
        let fault_rate = if calm { FaultRate::None } else { self.habits.fault_rate };
        let trip = self.executor.draw(|random| {
            let instant = random.chance(self.habits.instant_per_thousand);
            let way_us_max = if instant { 0 } else { self.habits.way_us_max };
            let mut way = || random.micros(0, way_us_max);
            let (there, back) = (way(), way());
            let fault = if away { fault_away(random) } else { fault(fault_rate, random) };
            if fault == Some(Fault::Slow) {
                return RoundTrip { there: there * SLOW, back: back * SLOW, fault };
            }
            RoundTrip { there, back, fault }
        });
        if let Some(fault) = trip.fault {
            self.recorder.record(process, EventKind::Fault(fault));
        }
        trip
    }

    /// Writes what is not locked of a part of a batch, now. What has its answer already stays as it is.
    pub(super) fn apply(
        &self,
        process: Process,
        batch: &[Swap],
        sent_us: u64,
        answers: &mut [Option<Swapped>],
    ) {
        let mut state = lock(&self.state);
        let now_us = self.now_us();
        for (swap, answer) in batch.iter().zip(answers) {
            if answer.is_some() || state.locks.contains_key(&swap.id) {
                continue;
            }
            let before = state.now.load(now_us, &swap.id);
            let swapped = state.now.swap(now_us, swap);
            if let Swapped::Won(version) = swapped {
                let after = state.now.load(now_us, &swap.id);
                self.recorder.record(process, wrote(&swap.id, version.0, before, after, None, sent_us));
                self.changed(&swap.id);
            }
            *answer = Some(swapped);
        }
    }

    /// Has it signalled that a record was changed.
    pub(super) fn changed(&self, id: &Id) {
        if self.habits.signals {
            lock(&self.changes).push(id.clone());
        }
    }

    /// Writes a part of a batch, waiting a moment for what is locked.
    pub(super) async fn write(&self, process: Process, batch: &[Swap], sent_us: u64) -> Vec<Swapped> {
        let mut answers: Vec<Option<Swapped>> = vec![None; batch.len()];
        let mut waited = Duration::ZERO;
        loop {
            self.apply(process, batch, sent_us, &mut answers);
            if waited >= LOCK_WAIT || answers.iter().all(Option::is_some) {
                break;
            }
            self.executor.sleep(OUTSIDE, LOCK_LOOK).await;
            waited += LOCK_LOOK;
        }
        if answers.iter().any(Option::is_none) {
            self.recorder.record(process, EventKind::Fault(Fault::Locked));
        }
        let locked =
            || Swapped::Failed(Error::new(ErrorKind::Unavailable, "simulated: the record is locked"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(locked)).collect()
    }

    pub(super) fn is_locked(&self, batch: &[Swap]) -> bool {
        let state = lock(&self.state);
        !state.locks.is_empty() && batch.iter().any(|swap| state.locks.contains_key(&swap.id))
    }

    /// What was seen is safe before it is told.
    pub(super) fn sync(&self, process: Process, batch: &[Swap], answers: &[Swapped]) {
        if self.habits.home == Home::Server {
            return;
        }
        let mut state = lock(&self.state);
        if self.habits.home == Home::Embedded {
            state.synced = state.now.clone();
        }
        for (swap, answer) in batch.iter().zip(answers) {
            if let Swapped::Won(version) = answer {
                let what = EventKind::Acknowledged { id: swap.id.clone(), version: version.0 };
                self.recorder.record(process, what);
            }
        }
    }

    /// Whose tasks carry on what was sent.
    pub(super) fn carrier(&self, process: Process) -> Process {
        if self.habits.home == Home::Server { OUTSIDE } else { process }
    }
}

pub(super) fn wrote(
    id: &Id,
    version: u64,
    before: Option<Found>,
    after: Option<Found>,
    tx: Option<Tx>,
    sent_us: u64,
) -> EventKind {
    let read = |found: Option<Found>| found.map(|found| codec::decode(&found).map(Box::new)).transpose();
    match (read(before), read(after)) {
        (Ok(before), Ok(after)) => EventKind::Wrote { id: id.clone(), version, before, after, tx, sent_us },
        _ => EventKind::Unreadable { id: id.clone() },
    }
}
