//! The work of a simulated run: it takes time, has an effect, and ends in every way that work can end.
//! Its end is recorded in the history, also when it is dropped midway.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use onceward::{Answer, Fence, Id, Lease, Outcome, Policy, Stopped, Verdict};

use super::callers::CallPlan;
use super::executor::Process;
use super::history::{Call, CallMethod, CallResult, End, EventKind, Stamp, name};
use super::scenario::WorkPlan;
use super::simulation::Simulation;
use super::transaction_callers::{Committing, step_in};
use crate::broken::callers::CallerFlaw;

/// One call under way. If it is dropped without an answer, its caller went away.
pub(super) struct Waiting {
    sim: Arc<Simulation>,
    process: Process,
    pub(super) call: Call,
    open: bool,
}

impl Waiting {
    /// Takes down that somebody asks.
    pub(super) fn asks(
        sim: &Arc<Simulation>,
        process: Process,
        id: &Id,
        fingerprint: u8,
        policy: &Arc<Policy>,
        way: CallMethod,
        input: bool,
    ) -> Self {
        let call = sim.recorder.next_call();
        let (id, policy) = (id.clone(), Arc::clone(policy));
        sim.recorder.record(process, EventKind::Asked { call, id, fingerprint, policy, way, input });
        Self { sim: Arc::clone(sim), process, call, open: true }
    }

    /// Takes down what it was told.
    pub(super) fn told(&mut self, told: CallResult) {
        self.open = false;
        self.sim.recorder.record(self.process, EventKind::Answered { call: self.call, told });
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.open {
            self.sim.recorder.record(self.process, EventKind::WentAway { call: self.call });
        }
    }
}

/// Work under way. If it is dropped before its end, it was cut.
pub(super) struct Working {
    sim: Arc<Simulation>,
    process: Process,
    call: Call,
    open: bool,
}

impl Working {
    pub(super) fn begins(
        sim: &Arc<Simulation>,
        process: Process,
        call: Call,
        fence: Fence,
        input: Option<Bytes>,
    ) -> Self {
        sim.recorder.record(process, EventKind::Began { call, fence, input });
        Self { sim: Arc::clone(sim), process, call, open: true }
    }

    pub(super) fn effect(&self) {
        self.sim.recorder.record(self.process, EventKind::Effect { call: self.call });
    }

    /// It is over as far as it knows, and only its commit is to come.
    pub(super) fn ends_with_commit(&mut self, how: End) {
        self.ends(how);
        self.open = true;
    }

    /// Its commit came.
    pub(super) fn committed(&mut self) {
        self.open = false;
    }

    pub(super) fn ends(&mut self, how: End) {
        self.open = false;
        self.sim.recorder.record(self.process, EventKind::Ended { call: self.call, how });
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.open {
            self.ends(if std::thread::panicking() { End::Panicked } else { End::Cut });
        }
    }
}

/// The work of any run.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<Outcome, Stopped>> + Send>>;

/// Does the work of one call.
pub(super) fn work(
    sim: Arc<Simulation>,
    process: Process,
    call: Call,
    lease: Lease,
    fingerprint: u8,
    plan: WorkPlan,
) -> Work {
    // Boxed, because a step's work is work again.
    Box::pin(async move {
        let mut working = Working::begins(&sim, process, call, lease.fence(), lease.input().cloned());
        if sim.is_poison(lease.id()) && lease.input().is_some() && !sim.is_calm() {
            pause(&sim, process, plan.before).await;
            sim.kill(process);
            std::future::pending::<()>().await;
        }
        for number in 0..plan.steps {
            if !step(&sim, process, call, &lease, fingerprint, number).await {
                working.ends(End::Unknown);
                return Err(Stopped::unknown("a step did not work out"));
            }
        }
        replace_input(&sim, process, call, &lease, fingerprint).await;
        pause(&sim, process, plan.before).await;
        if plan.end == End::BeforeEffect {
            working.ends(End::BeforeEffect);
            return Err(Stopped::before_effect("nothing happened"));
        }
        if plan.end == End::Suspended {
            working.ends(End::Suspended);
            return Err(Stopped::suspend(plan.after));
        }
        if plan.commits && sim.has_transactions() && !lease.id().is_step() {
            let run = Committing { sim, process, call, fingerprint, plan };
            return run.work(&lease, &mut working).await;
        }
        working.effect();
        pause(&sim, process, plan.after).await;
        working.ends(plan.end);
        if sim.variant.caller == CallerFlaw::SaysNothingHappened && plan.end == End::Unknown {
            return Err(Stopped::before_effect("it went wrong, so nothing happened"));
        }
        ending(lease.id(), fingerprint, call, &plan)
    })
}

/// Replaces the input of the receipt by chance: for the next run of the intent.
async fn replace_input(sim: &Simulation, process: Process, call: Call, lease: &Lease, fingerprint: u8) {
    if !sim.scenario.besides.replaces_inputs || lease.input().is_none() {
        return;
    }
    for number in 0..sim.executor.draw(|random| random.below(3)) {
        let stamp = Stamp { name: name(lease.id()), fingerprint, call: call.0 }.text();
        let input = Bytes::from(format!("{stamp} replaced {number}"));
        let (id, fence) = (lease.id().clone(), lease.fence());
        sim.recorder.record(process, EventKind::Replacing { id: id.clone(), fence, input: input.clone() });
        // After an error it may have happened.
        if lease.replace_input(input.clone()).await.is_ok() {
            sim.recorder.record(process, EventKind::Replaced { id, fence, input });
        }
    }
}

/// What work that ends like this returns.
pub(super) fn ending(id: &Id, fingerprint: u8, call: Call, plan: &WorkPlan) -> Result<Outcome, Stopped> {
    match plan.end {
        End::Succeeded | End::Failed => Ok(outcome(id, fingerprint, call, plan)),
        End::Panicked => resume_unwind(Box::new("simulated: the work panics")),
        _ => Err(Stopped::unknown("who knows")),
    }
}

/// An outcome that says whose it is.
pub(super) fn outcome(id: &Id, fingerprint: u8, call: Call, plan: &WorkPlan) -> Outcome {
    let stamp = Stamp { name: name(id), fingerprint, call: call.0 }.text();
    match (plan.end, plan.omitted) {
        (End::Failed, false) => Outcome::failed(stamp),
        (End::Failed, true) => Outcome::omitted(Verdict::Failed, stamp),
        (_, false) => Outcome::succeeded(stamp),
        (_, true) => Outcome::omitted(Verdict::Succeeded, stamp),
    }
}

/// A recovery point. Says whether the work may go on behind it.
async fn step(
    sim: &Arc<Simulation>,
    process: Process,
    call: Call,
    lease: &Lease,
    fingerprint: u8,
    number: usize,
) -> bool {
    let step = format!("s{number}");
    let id = lease.id().step(&step).expect("a short name");
    let (mut plan, in_transaction) =
        sim.executor.draw(|random| (WorkPlan::of(random, sim.scenario.lease_max), random.chance(300)));
    plan.steps = 0;
    if in_transaction && sim.has_transactions() {
        let policy = sim.recorder.policy_of(call);
        let step = CallPlan { id, fingerprint, policy, input: false };
        return step_in(sim, process, lease, &step, plan).await;
    }
    let policy = sim.policy_of(&id);
    let mut waiting = Waiting::asks(sim, process, &id, fingerprint, &policy, CallMethod::Step, false);
    let (inside, call) = (Arc::clone(sim), waiting.call);
    let work = move |lease| work(inside, process, call, lease, fingerprint, plan);
    let answer = match Caught(pin!(lease.step_under(policy, &step, work))).await {
        Ok(answer) => answer,
        Err(panic) => {
            waiting.told(CallResult::Panic);
            resume_unwind(panic)
        }
    };
    let goes_on =
        matches!(&answer, Ok(Answer::Completed(ran)) if ran.outcome.verdict() == Verdict::Succeeded);
    waiting.told(told(answer));
    goes_on
}

/// What a caller of `run` was told.
pub(super) fn told(answer: onceward::Result<Answer>) -> CallResult {
    match answer {
        Ok(answer) => CallResult::Answer(Box::new(answer)),
        Err(error) => CallResult::Error(Box::new(error)),
    }
}

/// Waits by the process's clock; not at all if there is nothing to wait for.
pub(super) async fn pause(sim: &Simulation, process: Process, duration: std::time::Duration) {
    if !duration.is_zero() {
        sim.executor.sleep(process, duration).await;
    }
}

/// A future whose panic is a value.
pub(super) struct Caught<F>(pub(super) F);

impl<F: Future + Unpin> Future for Caught<F> {
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
