//! Sets up and runs one simulation: processes with engines and callers over one store, injected faults, and at the
//! end, without faults, one more call for every intent.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{Answer, Id, Limits, Onceward, Policy, Refusal, Runtime, Settlement, Store};

use super::callers::{CallPlan, WorkPlanOf, by_run, caller};
use super::executor::{Executor, OUTSIDE, Process, lock};
use super::faults::{Fault, FaultRate};
use super::front::{FrontBehavior, SimFront};
use super::history::{Closing, EventKind, Recorder};
use super::maintenance::{decide, eraser, operator, settle, sweeper};
use super::resumers::resumer;
use super::runtime::ProcessRuntime;
use super::scenario::{Besides, Scenario, Wanted, WorkPlan};
use super::store::{Home, SimStore};
use super::variant::Variant;
use super::workers::worker;
use crate::broken::callers::Answers;
use crate::broken::fronts::{EarlyStore, FrontFlaw};
use crate::broken::stores::{BrokenStore, StoreFlaw};
use crate::broken::workers::WorkerFlaw;

/// Longest time until all calls are made, and then until everything has ended.
const CALLS_TIME: Duration = Duration::from_secs(20);
const END_TIME: Duration = Duration::from_mins(2);
/// Tells the numbers of what is done besides from the others of a seed.
const BESIDES: u64 = 0x6265_7369_6465_7321;
/// Between two checks whether something has ended.
const LOOK: Duration = Duration::from_millis(50);
/// The number of calls without faults before an intent counts as wedged.
const FINAL_TRIES: usize = 60;
/// More than the longest pause of an engine between two tries of a write.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(1_100);

/// The state that all actors of one simulation share.
pub(super) struct Simulation {
    pub(super) executor: Arc<Executor>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) store: Arc<SimStore>,
    pub(super) front: Option<Arc<SimFront>>,
    pub(super) scenario: Scenario,
    pub(super) variant: Variant,
    /// The answers that a broken caller keeps.
    pub(super) answers: Answers,
    engines: Mutex<Vec<Option<Onceward>>>,
    calls_left: AtomicU32,
    busy: AtomicUsize,
    calm: AtomicBool,
    over: AtomicBool,
}

/// Counts one actor that must end; dropping it decrements the count, also in a crash.
pub(super) struct BusyGuard(Arc<Simulation>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Simulation {
    pub(super) fn new(seed: u64, variant: &Variant) -> Arc<Self> {
        let mut random = crate::random::Random::new(seed);
        let embedded = if variant.unsynced { Home::EmbeddedUnsynced } else { Home::Embedded };
        let mut scenario = Scenario::of(&mut random, embedded);
        // From numbers of its own: what else a seed gives stays what it was.
        if scenario.habits.home == Home::Server {
            scenario.front = FrontBehavior::of(&mut crate::random::Random::new(!seed));
        }
        let mut besides = crate::random::Random::new(seed.rotate_left(32) ^ BESIDES);
        scenario.besides = Besides::of(&mut besides);
        if scenario.habits.home == Home::Server {
            scenario.ways.push((besides.pick(&[0, 0, 150]), Wanted::RecordIn));
        }
        let executor = Executor::new(random.number(), scenario.processes);
        let recorder = Recorder::new(&executor);
        let store = SimStore::new(&executor, &recorder, scenario.habits, scenario.processes);
        let ids = scenario.intents.iter().map(|intent| intent.id.clone()).collect();
        let front = scenario.front;
        let front = front.map(|behavior| SimFront::new(&executor, &store, behavior, variant.front, ids));
        Arc::new(Self {
            front,
            answers: Answers::default(),
            engines: Mutex::new(vec![None; scenario.processes + 1]),
            calls_left: AtomicU32::new(scenario.calls),
            busy: AtomicUsize::new(0),
            calm: AtomicBool::new(false),
            over: AtomicBool::new(false),
            executor,
            recorder,
            store,
            scenario,
            variant: variant.clone(),
        })
    }

    /// Lets everything begin.
    pub(super) fn begin(self: &Arc<Self>) {
        for number in 1..=self.scenario.processes {
            self.start(Process { number, life: 0 });
        }
        self.executor.spawn(OUTSIDE, nemesis(Arc::clone(self)));
        self.executor.spawn(OUTSIDE, direct(Arc::clone(self)));
    }

    /// Whether nothing is faulty any more.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether there is one more call to make.
    pub(super) fn take_call(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// The first contract of an intent, also for its steps.
    pub(super) fn policy_of(&self, id: &Id) -> Arc<Policy> {
        let intent = self.scenario.intents.iter().find(|intent| intent.id.key() == id.key());
        Arc::clone(&intent.expect("an intent of this simulation").policies[0])
    }

    /// Whether the store has transactions.
    pub(super) fn has_transactions(&self) -> bool {
        self.scenario.habits.home == Home::Server
    }

    /// Whether the work of an intent kills the process that does it.
    pub(super) fn is_poison(&self, id: &Id) -> bool {
        self.scenario.intents.iter().any(|intent| intent.poison && intent.id == *id)
    }

    pub(super) fn engine(&self, number: usize) -> Option<Onceward> {
        lock(&self.engines)[number].clone()
    }

    /// Starts a process: an engine of its own, callers, perhaps a worker, a sweep and an operator.
    fn start(self: &Arc<Self>, process: Process) {
        let runtime: Arc<dyn Runtime> = ProcessRuntime::new(&self.executor, process);
        let runtime = self.variant.runtime.break_it(runtime);
        let mut store = self.store.handle(process);
        if let Some((flaw, memory)) = &self.variant.store {
            store = BrokenStore::wrap(store, *flaw, memory);
        }
        if let (FrontFlaw::PutsBeforeTheCommit, Some(front)) = (self.variant.front, &self.front) {
            store = Arc::new(EarlyStore { inner: store, front: Arc::clone(front) });
        }
        let mut limits: Limits = self.scenario.limits.clone();
        if self.variant.forgets_owed {
            limits.owed_releases_max = 0;
        }
        let engine_over = |store: Arc<dyn Store>| {
            let mut builder = Onceward::builder(store)
                .with_runtime(Arc::clone(&runtime))
                .with_limits(limits.clone())
                .with_rules(self.variant.rules);
            if let (Some(front), Some(behavior)) = (&self.front, &self.scenario.front) {
                builder = builder
                    .with_front(front.handle(process))
                    .with_cache_times(behavior.age_max, behavior.retention_margin);
            }
            builder.build().expect("the simulated store is fit to be the record of truth")
        };
        let engine = engine_over(Arc::clone(&store));
        lock(&self.engines)[process.number] = Some(engine.clone());
        for _ in 0..self.scenario.callers {
            self.spawn_busy(process, caller(Arc::clone(self), process, engine.clone()));
        }
        if let Some(workers) = &self.scenario.workers {
            let flaw = match self.variant.worker {
                WorkerFlaw::ClaimByKeyAlone => Some(StoreFlaw::RenewsByKeyAlone),
                WorkerFlaw::BeginWhatIsHeld => Some(StoreFlaw::ListsHeldAsDue),
                WorkerFlaw::BeginTooEarly => Some(StoreFlaw::ListsWaitingAsDue),
                WorkerFlaw::None | WorkerFlaw::NeverLook | WorkerFlaw::ResumesByKeyAlone => None,
            };
            let engine = flaw.map_or_else(
                || engine.clone(),
                |flaw| engine_over(BrokenStore::wrap(Arc::clone(&store), flaw, &Arc::default())),
            );
            self.executor.spawn(process, worker(Arc::clone(self), process, engine, workers.clone()));
        }
        if let Some(every) = self.scenario.besides.resume_every {
            let engine = match self.variant.worker {
                WorkerFlaw::ResumesByKeyAlone => {
                    let flaw = StoreFlaw::RenewsByKeyAlone;
                    engine_over(BrokenStore::wrap(Arc::clone(&store), flaw, &Arc::default()))
                }
                _ => engine.clone(),
            };
            self.executor.spawn(process, resumer(Arc::clone(self), process, engine, every));
        }
        if let Some(every) = self.scenario.sweep_every {
            self.executor.spawn(process, sweeper(Arc::clone(self), process, engine.clone(), store, every));
        }
        if let Some(behavior) = &self.scenario.front {
            self.executor.spawn(process, eraser(Arc::clone(self), process, engine.clone(), *behavior));
        }
        if let Some(every) = self.scenario.settle_every {
            self.executor.spawn(process, operator(Arc::clone(self), process, engine, every));
        }
    }

    /// Counts one more actor that must end.
    pub(super) fn busy(sim: &Arc<Self>) -> BusyGuard {
        sim.busy.fetch_add(1, Ordering::Relaxed);
        BusyGuard(Arc::clone(sim))
    }

    fn spawn_busy(self: &Arc<Self>, process: Process, task: impl Future<Output = ()> + Send + 'static) {
        let busy = Self::busy(self);
        self.executor.spawn(process, async move {
            task.await;
            drop(busy);
        });
    }

    fn crash(&self, process: Process) {
        self.recorder.record(process, EventKind::Crashed);
        // The engine dies with the process; here it is only let go of, outside of the lock.
        let engine = lock(&self.engines)[process.number].take();
        self.executor.crash(process.number);
        drop(engine);
    }

    fn revive(self: &Arc<Self>, number: usize) {
        let process = self.executor.revive(number);
        self.recorder.record(process, EventKind::Started);
        if self.scenario.habits.home != Home::Server {
            self.store.reopen(process);
        }
        self.start(process);
    }

    /// Has a process die a moment later, and start again after that.
    pub(super) fn kill(self: &Arc<Self>, process: Process) {
        let sim = Arc::clone(self);
        self.executor.spawn(OUTSIDE, async move {
            if sim.executor.life(process.number) != Some(process) {
                return;
            }
            let length = sim.executor.draw(|random| random.micros(0, 100_000));
            sim.crash(process);
            sim.executor.sleep(OUTSIDE, length).await;
            sim.revive(process.number);
        });
    }

    async fn ended(&self, within: Duration, done: impl Fn() -> bool) -> bool {
        let looks = within.as_millis() / LOOK.as_millis();
        for _ in 0..looks {
            if done() {
                return true;
            }
            self.executor.sleep(OUTSIDE, LOOK).await;
        }
        false
    }

    fn wedged(&self, detail: &str) {
        self.recorder.record(OUTSIDE, EventKind::Wedged(detail.to_owned()));
    }
}

/// Injects a fault into a process now and then, until the calm phase begins.
async fn nemesis(sim: Arc<Simulation>) {
    if sim.scenario.habits.fault_rate == FaultRate::None {
        return;
    }
    let lease_us = u64::try_from(sim.scenario.lease_max.as_micros()).unwrap_or_default();
    loop {
        let (wait, number, fault, length) = sim.executor.draw(|random| {
            let faults = [(2, Fault::Crash), (3, Fault::Pause), (2, Fault::Jump), (2, Fault::Outage)];
            let number = random.below(sim.scenario.processes) + 1;
            (random.micros(5_000, 600_000), number, random.weighed(&faults), random.micros(0, lease_us * 3))
        });
        sim.executor.sleep(OUTSIDE, wait).await;
        if sim.is_calm() {
            return;
        }
        let Some(process) = sim.executor.life(number) else { continue };
        match fault {
            Fault::Crash => {
                sim.crash(process);
                sim.executor.sleep(OUTSIDE, length).await;
                sim.revive(number);
            }
            Fault::Pause => {
                sim.recorder.record(process, EventKind::Paused(length));
                sim.executor.pause(number, length);
            }
            Fault::Outage => {
                sim.recorder.record(process, EventKind::Fault(Fault::Outage));
                // Of the whole store, or of this process's way to it.
                let all = sim.executor.draw(|random| random.chance(500));
                let away = if all { 1..=sim.scenario.processes } else { number..=number };
                away.for_each(|number| sim.store.go_away(number, length));
            }
            _ => {
                sim.recorder.record(process, EventKind::Jumped(length));
                sim.executor.jump(number, length);
            }
        }
    }
}

/// Lets the calls be made, lets the faults cease, and then has everything asked for once more everywhere.
async fn direct(sim: Arc<Simulation>) {
    let made = || sim.calls_left.load(Ordering::Relaxed) == 0;
    sim.ended(CALLS_TIME, made).await;
    sim.calls_left.store(0, Ordering::Relaxed);
    sim.calm.store(true, Ordering::Relaxed);
    sim.store.calm_down();
    let idle = || sim.busy.load(Ordering::Relaxed) == 0;
    let all_alive = || (1..=sim.scenario.processes).all(|number| sim.executor.life(number).is_some());
    if !sim.ended(END_TIME, || idle() && all_alive()).await {
        sim.wedged("a call has no answer long after all faults ceased");
    }
    sim.recorder.record(OUTSIDE, EventKind::Calm);
    // Whatever was held is over by then, and what was late has come: an engine that still waits for the
    // answer to a slow call answers for its run until it has it. A write that is retried has been tried again.
    let slowest = sim.scenario.habits.slowest();
    let mut settled = (sim.scenario.lease_max * 4).max(slowest);
    if sim.scenario.habits.fault_rate != FaultRate::None {
        settled = settled.max(RETRY_PAUSE_MAX);
    }
    if let Some(workers) = &sim.scenario.workers {
        // A look or two, each with its ways to the store; what had failed was tried again by then.
        settled += workers.every * 4 + slowest + sim.scenario.lease_max;
    }
    sim.executor.sleep(OUTSIDE, settled).await;
    sim.recorder.record(OUTSIDE, EventKind::Patience);
    for number in 1..=sim.scenario.processes {
        if let (Some(process), Some(engine)) = (sim.executor.life(number), sim.engine(number)) {
            sim.spawn_busy(process, ask_for_all(Arc::clone(&sim), process, engine));
        }
    }
    if !sim.ended(END_TIME, idle).await {
        sim.wedged("an ask without faults has no answer");
    }
    sim.over.store(true, Ordering::Relaxed);
}

/// Asks for every intent until there is a final answer.
async fn ask_for_all(sim: Arc<Simulation>, process: Process, engine: Onceward) {
    for intent in &sim.scenario.intents {
        let policy = Arc::clone(&intent.policies[0]);
        let mut call_plan = CallPlan { id: intent.id.clone(), fingerprint: 0, policy, input: intent.input };
        let mut last = None;
        let mut tries = 0;
        loop {
            last = by_run(&sim, process, &engine, &call_plan, WorkPlanOf::This(WorkPlan::HEALTHY))
                .await
                .or(last);
            let wait = match &last {
                Some(Answer::Completed(_)) => break,
                Some(Answer::Refused(
                    Refusal::KeyExpired | Refusal::ResponseNotStored { .. } | Refusal::Closed(_),
                )) => break,
                Some(Answer::Refused(Refusal::Dead { .. })) => {
                    decide(&sim, process, &engine, &call_plan.id, Closing::Retry).await;
                    // The outcome of one of its tries may be unknown.
                    settle_not_done(&sim, process, &engine, &call_plan).await;
                    Duration::ZERO
                }
                Some(Answer::Refused(Refusal::InProgress { retry_after })) => {
                    (*retry_after).max(sim.scenario.lease_max / 4)
                }
                Some(Answer::Refused(Refusal::KeyReused)) => {
                    call_plan.fingerprint = 1 - call_plan.fingerprint;
                    Duration::ZERO
                }
                Some(Answer::Refused(Refusal::OutcomeUnknown)) => {
                    settle_not_done(&sim, process, &engine, &call_plan).await;
                    // What may still be on its way is waited for.
                    sim.scenario.lease_max / 4
                }
                _ => sim.scenario.lease_max / 4,
            };
            sim.executor.sleep(process, wait).await;
            tries += 1;
            if tries == FINAL_TRIES {
                sim.wedged(&format!("{}: asked {tries} times without faults, {last:?}", intent.id.key()));
                break;
            }
        }
    }
}

async fn settle_not_done(sim: &Simulation, process: Process, engine: &Onceward, call_plan: &CallPlan) {
    if let Ok(Some(receipt)) = engine.receipt(&call_plan.id).await
        && let Status::Unknown(_) | Status::Dead(_) = receipt.status
        && let Some(claim) = receipt.status.claim()
    {
        // Another settlement that came first is fine, too.
        settle(sim, process, engine, &call_plan.id, claim, Settlement::NotDone).await;
    }
}
