//! Runs many seeds on several threads and sums up their results.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use onceward::{Enqueued, State};

use super::executor::lock;
use super::faults::Fault;
use super::history::{CallResult, EventKind};
use super::variant::Variant;
use super::{Outcome, play};

/// What many seeds add up to.
#[derive(Debug, Default)]
pub struct Totals {
    /// Simulations run.
    pub seeds: u64,
    /// Things that happened in them.
    pub events: u64,
    /// Calls made.
    pub calls: u64,
    /// Runs of work.
    pub runs: u64,
    /// Intents that were left to workers.
    pub enqueued: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Intents whose tries were used up.
    pub dead: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// The failing simulation with the lowest seed.
    pub failure: Option<Box<Outcome>>,
    /// By promise: how many simulations broke it first, and the lowest of their seeds.
    pub broken: BTreeMap<&'static str, (u64, u64)>,
}

/// What to do when a simulation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Run no other.
    Stop,
    /// Go on, and count.
    Count,
}

impl Totals {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.history.len() as u64;
        for event in &outcome.history {
            match &event.what {
                EventKind::Asked { .. } => self.calls += 1,
                EventKind::Began { .. } => self.runs += 1,
                EventKind::Committed { .. } => self.commits += 1,
                EventKind::Answered { told: CallResult::Enqueued(enqueued), .. } => {
                    self.enqueued += u64::from(**enqueued == Enqueued::Accepted);
                }
                EventKind::Wrote { after: Some(after), .. } => {
                    self.dead += u64::from(after.status.state() == State::Dead);
                }
                EventKind::Fault(fault) => *self.faults.entry(*fault).or_default() += 1,
                EventKind::Crashed => *self.faults.entry(Fault::Crash).or_default() += 1,
                EventKind::Paused(_) => *self.faults.entry(Fault::Pause).or_default() += 1,
                EventKind::Jumped(_) => *self.faults.entry(Fault::Jump).or_default() += 1,
                _ => {}
            }
        }
        if let Some(first) = outcome.violations.first() {
            let (count, lowest) = self.broken.entry(first.rule).or_insert((0, outcome.seed));
            *count += 1;
            *lowest = (*lowest).min(outcome.seed);
        }
        let lowest = self.failure.as_ref().is_none_or(|failure| outcome.seed < failure.seed);
        if lowest && !outcome.violations.is_empty() {
            self.failure = Some(Box::new(outcome));
        }
    }
}

/// Plays seeds until they are used up, or one fails and that is enough. `make` gives the variant for each,
/// `tick` is told of each that is done.
pub fn run_seeds(
    from: u64,
    seeds: u64,
    jobs: usize,
    on_failure: OnFailure,
    make: impl Fn() -> Variant + Sync,
    tick: impl Fn() + Sync,
) -> Totals {
    let next = AtomicU64::new(from);
    let sum = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = on_failure == OnFailure::Stop && lock(&sum).failure.is_some();
                    if enough || seed >= from.saturating_add(seeds) {
                        return;
                    }
                    let outcome = play(seed, &make());
                    lock(&sum).add(outcome);
                    tick();
                }
            });
        }
    });
    sum.into_inner().unwrap_or_default()
}
