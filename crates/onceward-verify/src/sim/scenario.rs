//! Derives a scenario from a seed: the number of processes and callers, their policies, and the rate of faults.

use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Backoff, Id, KeepInput, Limits, OnDuplicate, OnExpired, OnFailure, OnUnknown, Policy, Retention, Sweep,
};

use super::executor::micros;
use super::faults::FaultRate;
use super::front::FrontBehavior;
use super::history::End;
use super::store::{Home, Isolation, StoreBehavior};
use crate::random::Random;

/// The operation of the intents of these simulations.
const OPERATIONS: [&str; 2] = ["do", "pay"];

/// Everything that is decided before a simulation begins. What is decided later comes from the same seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many processes.
    pub processes: usize,
    /// How many callers in each.
    pub callers: usize,
    /// How many calls in all.
    pub calls: u32,
    /// What is asked for, and under which contracts. Few, so that they meet.
    pub intents: Vec<Intent>,
    /// How the store behaves.
    pub habits: StoreBehavior,
    /// How long the longest lease lasts.
    pub lease_max: Duration,
    /// Between two sweeps of a process, if it sweeps.
    pub sweep_every: Option<Duration>,
    /// Whether sweeps give up unknown outcomes that nobody settles.
    pub gives_up: bool,
    /// Whether operators erase receipts.
    pub erases: bool,
    /// The workers of each process, if they have any.
    pub workers: Option<Workers>,
    /// Between two looks of an operator, if there is one.
    pub settle_every: Option<Duration>,
    /// How often each way of asking is chosen.
    pub ways: Vec<(u32, Wanted)>,
    /// How many of a thousand callers go away before they have an answer.
    pub impatient_per_thousand: u32,
    /// The bounds of each engine.
    pub limits: Limits,
    /// The volatile front before the store, if it has one.
    pub front: Option<FrontBehavior>,
    /// What is done besides.
    pub besides: Besides,
}

/// What some simulations do besides. Drawn from numbers of its own: what else a seed gives stays what it was.
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself, and any of them go together")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Besides {
    /// Between two looks of a caller in each process that resumes what it finds, if there is one.
    pub resume_every: Option<Duration>,
    /// Whether runs replace their inputs.
    pub replaces_inputs: bool,
    /// Whether operators forget unknown outcomes.
    pub forgets_unknown: bool,
    /// Whether operators have what waits begin at once.
    pub starts_now: bool,
    /// Whether operators erase all that matches, and not only one at a time.
    pub erases_matching: bool,
    /// Whether those who undo what has not begun do so by what they have read, or in transactions of their own.
    pub closes_otherwise: bool,
}

impl Besides {
    /// By chance.
    pub fn of(random: &mut Random) -> Self {
        Self {
            resume_every: random.chance(200).then(|| random.micros(10_000, 300_000)),
            replaces_inputs: random.chance(250),
            forgets_unknown: random.chance(200),
            starts_now: random.chance(200),
            erases_matching: random.chance(300),
            closes_otherwise: random.chance(400),
        }
    }
}

/// One thing that callers want done.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Its id.
    pub id: Id,
    /// The contracts under which it is asked for: mostly one.
    pub policies: Vec<Arc<Policy>>,
    /// Whether those who ask for it bring an input along.
    pub input: bool,
    /// Whether its work kills the process that does it.
    pub poison: bool,
}

/// How the workers of a simulation work.
#[derive(Clone, Debug)]
pub struct Workers {
    /// Longest time between two looks.
    pub every: Duration,
    /// What they have code for.
    pub patterns: &'static [&'static str],
    /// The contract of that code.
    pub policy: Arc<Policy>,
}

impl Workers {
    fn of(random: &mut Random, lease_max: Duration) -> Self {
        const PATTERNS: [&[&str]; 4] = [&["do"], &["pay*"], &["do", "pay"], &["*"]];
        Self {
            every: random.micros(10_000, 400_000),
            patterns: random.pick(&PATTERNS),
            policy: Arc::new(contract(random, lease_max)),
        }
    }

    /// Returns whether they have code for an intent.
    pub fn cover(&self, id: &Id) -> bool {
        !id.is_step()
            && self.patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => id.operation().starts_with(prefix),
                None => id.operation() == *pattern,
            })
    }
}

/// What a caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It asks with `run`.
    Run,
    /// It claims, and does everything else by hand.
    Hand,
    /// It leaves the intent to a worker.
    Enqueue,
    /// It asks with `transact`.
    Transact,
    /// It claims and completes in a transaction of its own.
    ClaimIn,
    /// It records intents as done in a transaction of its own.
    RecordIn,
    /// It cancels the intent, or closes it before it begins.
    Close,
}

impl Scenario {
    /// The scenario of a seed. `embedded` is how a store in the process behaves.
    pub fn of(random: &mut Random, embedded: Home) -> Self {
        let fault_rate = random.weighed(&[(2, FaultRate::None), (4, FaultRate::Low), (3, FaultRate::High)]);
        let home = if random.chance(250) { embedded } else { Home::Server };
        let processes = if home == Home::Server { random.below(4) + 1 } else { 1 };
        let lease_max = random.micros(20_000, 120_000);
        let intents = (0..=random.below(4)).map(|number| Intent::of(random, number, lease_max)).collect();
        let way_us_max = match fault_rate {
            FaultRate::None => 1_000,
            _ => random.pick(&[500, 2_000, 5_000]),
        };
        let long = lease_max * 3;
        let instant_per_thousand = random.pick(&[0, 200, 1000]);
        let isolation = random.pick(&[Isolation::Locks, Isolation::Optimistic]);
        let short = Limits::default().with_cache_bytes_max(0).with_waiters_max(2).with_batch_swaps_max(2);
        Self {
            processes,
            callers: random.below(4) + 1,
            calls: u32::try_from(random.between(6, 40)).unwrap_or_default(),
            intents,
            habits: StoreBehavior {
                home,
                isolation,
                fault_rate,
                way_us_max,
                instant_per_thousand,
                long,
                signals: random.chance(400),
            },
            lease_max,
            sweep_every: random.chance(600).then(|| random.micros(10_000, 400_000)),
            gives_up: random.chance(250),
            erases: random.chance(250),
            workers: random.chance(500).then(|| Workers::of(random, lease_max)),
            settle_every: random.chance(600).then(|| random.micros(20_000, 400_000)),
            ways: ways(random, home),
            impatient_per_thousand: random.pick(&[0, 100, 350]),
            limits: if random.chance(250) { short } else { Limits::default() },
            front: None,
            besides: Besides::default(),
        }
    }

    /// How one sweep goes.
    pub fn sweep(&self, random: &mut Random) -> Sweep {
        Sweep::default()
            .with_slice_records(random.below(4) + 1)
            .with_slices_max(random.below(8) + 1)
            .with_abandoned_after(self.lease_max * u32::try_from(random.below(12)).unwrap_or_default())
            .with_unknown_after(self.gives_up.then(|| random.micros(0, micros(self.lease_max) * 8)))
    }
}

impl Intent {
    fn of(random: &mut Random, number: usize, lease_max: Duration) -> Self {
        let key = char::from(b'A' + u8::try_from(number).unwrap_or_default()).to_string();
        let id = Id::new("sim", random.pick(&OPERATIONS), &key).expect("a right id");
        let policies = if random.chance(850) { 1 } else { 2 };
        let policies = (0..policies).map(|_| Arc::new(contract(random, lease_max))).collect();
        Self { id, policies, input: random.chance(600), poison: random.chance(70) }
    }
}

fn ways(random: &mut Random, home: Home) -> Vec<(u32, Wanted)> {
    // Only a server has transactions.
    let transact = if home == Home::Server { random.pick(&[0, 300, 900]) } else { 0 };
    vec![
        (500, Wanted::Run),
        (random.pick(&[0, 120, 500]), Wanted::Hand),
        (random.pick(&[0, 300, 900]), Wanted::Enqueue),
        (transact, Wanted::Transact),
        (transact / 3, Wanted::ClaimIn),
        (random.pick(&[0, 25]), Wanted::Close),
    ]
}

fn contract(random: &mut Random, lease_max: Duration) -> Policy {
    let keep = |random: &mut Random| match random.below(3) {
        0 => Retention::Forever,
        1 => Retention::For(random.micros(1_000, 100_000)),
        _ => Retention::For(random.micros(100_000, 3_000_000)),
    };
    let duplicate = match random.below(3) {
        0 => OnDuplicate::Conflict,
        _ => OnDuplicate::Wait(random.micros(1_000, 1_500_000)),
    };
    let expired = if random.chance(500) { OnExpired::Run } else { OnExpired::Refuse(keep(random)) };
    let failure = if random.chance(500) { OnFailure::Replay } else { OnFailure::Retry };
    let unknown = if random.chance(500) { OnUnknown::Hold } else { OnUnknown::Retry };
    let lease = if random.chance(300) { onceward::LEASE_MIN } else { lease_max };
    let (succeeded, failed) = (keep(random), keep(random));
    let tries = u16::try_from(random.below(4) + 1).unwrap_or(1);
    let backoff = Backoff::new(random.micros(100, 10_000), lease_max);
    let late = if random.chance(700) { Duration::ZERO } else { random.micros(1_000, 200_000) };
    let input = if random.chance(700) { KeepInput::UntilDone } else { KeepInput::WithReceipt };
    Policy::http()
        .to_builder()
        .with_lease(lease)
        .with_on_duplicate(duplicate)
        .with_on_failure(failure)
        .with_on_unknown(unknown)
        .with_on_expired(expired)
        .with_retention_succeeded(succeeded)
        .with_retention_failed(failed)
        .with_tries_max(tries)
        .with_backoff(backoff)
        .with_late_effect_max(late)
        .with_keep_input(input)
        .build()
        .expect("a contract within all bounds")
}

/// What one run of the work will do.
#[derive(Clone, Copy, Debug)]
pub struct WorkPlan {
    /// Until the effect.
    pub before: Duration,
    /// From the effect to the end.
    pub after: Duration,
    /// How it ends.
    pub end: End,
    /// Whether the answer is kept.
    pub omitted: bool,
    /// Recovery points on the way.
    pub steps: usize,
    /// Whether its effect is a write in a transaction that its receipt is committed with, if the store has any.
    pub commits: bool,
}

impl WorkPlan {
    /// Work that just succeeds.
    pub const HEALTHY: Self = Self {
        before: Duration::ZERO,
        after: Duration::ZERO,
        end: End::Succeeded,
        omitted: false,
        steps: 0,
        commits: false,
    };

    /// By chance: from instant to several leases, and every way to end.
    pub fn of(random: &mut Random, lease_max: Duration) -> Self {
        let mut stretch = || match random.below(4) {
            0 => Duration::ZERO,
            1 | 2 => random.micros(0, 10_000),
            _ => lease_max / 8 * u32::try_from(random.below(20)).unwrap_or_default(),
        };
        let (before, after) = (stretch(), stretch());
        let end = random.weighed(&[
            (12, End::Succeeded),
            (3, End::Failed),
            (2, End::BeforeEffect),
            (2, End::Unknown),
            (1, End::Panicked),
            (1, End::Suspended),
        ]);
        let steps = if random.chance(150) { random.below(2) + 1 } else { 0 };
        Self { before, after, end, omitted: random.chance(50), steps, commits: random.chance(200) }
    }
}
