//! Simulated callers that work in transactions: claim, business write and outcome commit together, and sometimes another intent is
//! enqueued in it; or a run that has its lease commits its outcome with its business write.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use onceward::{
    Answer, Applied, Ask, Changed, Claimed, Enqueued, ErrorKind, Fault, Fence, Id, Lease, OnFailure,
    Onceward, Outcome, Recorded, Seen, Stopped, Swap, Transactions, Verdict,
};

use super::callers::{CallPlan, within};
use super::executor::{Process, lock};
use super::history::{Call, CallMethod, CallResult, End, Stamp, name};
use super::scenario::WorkPlan;
use super::simulation::Simulation;
use super::transactions::{SimTransactions, SimTx};
use super::work::{Caught, Waiting, Working, ending, outcome, pause, told};
use crate::broken::callers::CallerFlaw;

/// What was enqueued in the transaction of a run: it counts when that commits.
type Pending = Arc<Mutex<Vec<(Fence, Waiting, Enqueued)>>>;

/// Asks with `transact`. Gives the answer, if there is one.
pub(super) async fn transact(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> Option<Answer> {
    let (plan, patience, other, is_known) = sim.executor.draw(|random| {
        let plan = WorkPlan::of(random, sim.scenario.lease_max);
        let impatient = random.chance(sim.scenario.impatient_per_thousand);
        (plan, impatient.then(|| random.micros(0, 100_000)), random.chance(300), random.chance(500))
    });
    let other = other
        .then(|| CallPlan::of(sim))
        .filter(|other| other.input && other.id != call_plan.id)
        .map(Arc::new);
    let transactions = SimTransactions::new(&sim.store, process, sim.variant.transactions);
    let mut waiting = call_plan.asks(sim, process, CallMethod::Transact);
    let (call, fingerprint) = (waiting.call, call_plan.fingerprint);
    let pending = Pending::default();
    let work = |lease: Lease, tx: SimTx| {
        let (sim, engine, pending) = (Arc::clone(sim), engine.clone(), Arc::clone(&pending));
        let run = Run { sim, process, call, fingerprint, plan, other: other.clone(), pending };
        run.work(Some(engine), lease, tx)
    };
    let ask = call_plan.ask(sim.variant.caller, call, None);
    let known = outcome(&call_plan.id, fingerprint, call, &plan);
    // On the heap, so that going away drops it there and then.
    let asking: Pin<Box<dyn Future<Output = onceward::Result<Answer>> + Send + '_>> = if is_known {
        let work = |lease, tx| {
            let working = work(lease, tx);
            async move { working.await.map(drop) }
        };
        Box::pin(engine.transact_with_outcome(&transactions, ask, known, work))
    } else {
        Box::pin(engine.transact(&transactions, ask, work))
    };
    let asking = Caught(asking);
    let answer = match patience {
        None => Some(asking.await),
        Some(patience) => within(sim, process, patience, asking).await,
    };
    let Ok(answer) = answer? else {
        waiting.told(CallResult::Panic);
        return None;
    };
    let committed = match &answer {
        Ok(Answer::Completed(ran)) if !ran.replayed && ran.recorded == Recorded::Yes => Some(ran.fence),
        _ => None,
    };
    for (fence, mut waiting, enqueued) in std::mem::take(&mut *lock(&pending)) {
        if committed == Some(fence) {
            waiting.told(CallResult::Enqueued(Box::new(enqueued)));
        }
    }
    waiting.told(told(answer.clone()));
    answer.ok()
}

/// A step of a run, in a transaction of its own. Says whether the work may go on behind it.
pub(super) async fn step_in(
    sim: &Arc<Simulation>,
    process: Process,
    lease: &Lease,
    step: &CallPlan,
    plan: WorkPlan,
) -> bool {
    let transactions = SimTransactions::new(&sim.store, process, sim.variant.transactions);
    let mut waiting = step.asks(sim, process, CallMethod::Transact);
    let (call, fingerprint) = (waiting.call, step.fingerprint);
    let (_, name) = step.id.operation().rsplit_once('#').expect("it is a step");
    let work = |lease: Lease, tx: SimTx| {
        let (sim, pending) = (Arc::clone(sim), Pending::default());
        let run = Run { sim, process, call, fingerprint, plan, other: None, pending };
        run.work(None, lease, tx)
    };
    let answer = match Caught(Box::pin(lease.step_in(&transactions, name, work))).await {
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

/// Claims and completes by hand, in a transaction of the caller's own. Says whether an error came between.
pub(super) async fn by_hand_in_transaction(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> bool {
    let mut waiting = call_plan.asks(sim, process, CallMethod::ClaimIn);
    let result = ByHand { sim, process, engine, call_plan, call: waiting.call }.ask().await;
    let failed = result.is_err();
    waiting.told(match result {
        Ok(told) => told,
        Err(error) => CallResult::Error(Box::new(error)),
    });
    failed
}

/// One ask by hand in a transaction.
struct ByHand<'a> {
    sim: &'a Arc<Simulation>,
    process: Process,
    engine: &'a Onceward,
    call_plan: &'a CallPlan,
    call: Call,
}

impl ByHand<'_> {
    async fn ask(&self) -> onceward::Result<CallResult> {
        let Self { sim, process, engine, call_plan, call } = self;
        let transactions = SimTransactions::new(&sim.store, *process, sim.variant.transactions);
        let mut tx = transactions.begin_bare(sim.scenario.lease_max).await.map_err(error_of)?;
        let ask = call_plan.ask(sim.variant.caller, *call, None);
        let ticket = match engine.claim_in(&mut tx, &ask).await {
            Ok(Claimed::Granted(ticket)) => ticket,
            Ok(Claimed::Answered(answer)) => {
                transactions.rollback(tx).await;
                return Ok(CallResult::Answer(Box::new(answer)));
            }
            Err(error) => {
                transactions.rollback(tx).await;
                return Err(error);
            }
        };
        let plan = sim.executor.draw(|random| WorkPlan::of(random, sim.scenario.lease_max));
        let mut working = Working::begins(sim, *process, *call, ticket.fence(), None);
        pause(sim, *process, plan.before).await;
        // What is to be tried again is rolled back with its business write.
        let retried = plan.end == End::Failed && call_plan.policy.on_failure() == OnFailure::Retry;
        if retried || !matches!(plan.end, End::Succeeded | End::Failed) {
            working.ends(End::BeforeEffect);
            transactions.rollback(tx).await;
            return Err(onceward::Error::new(ErrorKind::Stopped, "rolled back by its caller"));
        }
        tx.charge(*call);
        pause(sim, *process, plan.after).await;
        working.ends(plan.end);
        let made = outcome(&call_plan.id, call_plan.fingerprint, *call, &plan);
        if let Err(error) = engine.complete_in(&mut tx, &ticket, &made).await {
            transactions.rollback(tx).await;
            return Err(error);
        }
        transactions.commit(tx, &nothing_more(*call)).await.map_err(error_of)?;
        Ok(CallResult::Recorded)
    }
}

/// Undoes an intent that has not begun, in a transaction of the caller's own that mostly commits. Says whether an error came
/// between.
pub(super) async fn close_in_transaction(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> bool {
    let mut waiting = call_plan.asks(sim, process, CallMethod::CloseIn);
    let (after, commits) = sim.executor.draw(|random| (random.micros(0, 10_000), random.chance(700)));
    let closing = async {
        let transactions = SimTransactions::new(&sim.store, process, sim.variant.transactions);
        let mut tx = transactions.begin_bare(sim.scenario.lease_max).await.map_err(error_of)?;
        let closed = engine.close_in(&mut tx, &call_plan.id, &call_plan.policy).await;
        pause(sim, process, after).await;
        let closed = match closed {
            Ok(changed) if commits => changed == Changed::Applied,
            Ok(_) => {
                transactions.rollback(tx).await;
                return Ok(false);
            }
            Err(error) => {
                transactions.rollback(tx).await;
                return Err(error);
            }
        };
        transactions.commit(tx, &nothing_more(waiting.call)).await.map_err(error_of)?;
        Ok(closed)
    };
    let closed = closing.await;
    let failed = closed.is_err();
    waiting.told(match closed {
        Ok(closed) => CallResult::Closed(closed),
        Err(error) => CallResult::Error(Box::new(error)),
    });
    failed
}

/// Records one intent, or several at once, as done in a transaction of the caller's own: those that have no receipt. Says
/// whether an error came between.
pub(super) async fn record_in_transaction(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> bool {
    let CallPlan { id, fingerprint, policy, .. } = call_plan;
    let first =
        CallPlan { id: id.clone(), fingerprint: *fingerprint, policy: Arc::clone(policy), input: false };
    let mut plans = vec![first];
    for _ in 0..sim.executor.draw(|random| random.below(3)) {
        let other = CallPlan::of(sim);
        if plans.iter().all(|plan| plan.id != other.id) {
            plans.push(CallPlan { input: false, fingerprint: *fingerprint, ..other });
        }
    }
    let mut waiting: Vec<Waiting> =
        plans.iter().map(|plan| plan.asks(sim, process, CallMethod::RecordIn)).collect();
    let call = waiting[0].call;
    let names: Vec<String> = plans.iter().map(|plan| name(&plan.id)).collect();
    let stamp = Stamp { name: names.join("+"), fingerprint: *fingerprint, call: call.0 };
    let recording = async {
        let transactions = SimTransactions::new(&sim.store, process, sim.variant.transactions);
        let mut tx = transactions.begin_bare(sim.scenario.lease_max).await.map_err(error_of)?;
        let asks: Vec<Ask> = plans.iter().map(|plan| plan.ask(sim.variant.caller, call, None)).collect();
        let recorded = engine.record_in(&mut tx, &asks, &Outcome::succeeded(stamp.text())).await;
        let recorded = match recorded {
            Ok(recorded) if recorded.contains(&true) => recorded,
            Ok(recorded) => {
                transactions.rollback(tx).await;
                return Ok(recorded);
            }
            Err(error) => {
                transactions.rollback(tx).await;
                return Err(error);
            }
        };
        tx.charge(call);
        let after = sim.executor.draw(|random| random.micros(0, 10_000));
        pause(sim, process, after).await;
        transactions.commit(tx, &nothing_more(call)).await.map_err(error_of)?;
        Ok(recorded)
    };
    let recorded = recording.await;
    let failed = recorded.is_err();
    for (at, waiting) in waiting.iter_mut().enumerate() {
        waiting.told(match &recorded {
            Ok(recorded) => CallResult::RecordedIn(recorded[at]),
            Err(error) => CallResult::Error(Box::new(error.clone())),
        });
    }
    failed
}

/// The completion of a transaction in which all is written: the commit itself brings nothing.
fn nothing_more(call: Call) -> Swap {
    let id = Id::new("sim", "nothing", &call.0.to_string()).expect("a right id");
    Swap { id, seen: Seen::Absent, new: None }
}

/// The error in what a transaction failed with.
fn error_of(fault: Fault) -> onceward::Error {
    match fault {
        Fault::Undone(error) | Fault::Failed(error) => error,
        _ => onceward::Error::new(ErrorKind::Overloaded, "another transaction has it"),
    }
}

/// One run of the work of a transaction.
struct Run {
    sim: Arc<Simulation>,
    process: Process,
    call: Call,
    fingerprint: u8,
    plan: WorkPlan,
    other: Option<Arc<CallPlan>>,
    pending: Pending,
}

impl Run {
    async fn work(self, engine: Option<Onceward>, lease: Lease, mut tx: SimTx) -> Result<Outcome, Stopped> {
        let Self { sim, process, call, fingerprint, plan, .. } = &self;
        let mut working = Working::begins(sim, *process, *call, lease.fence(), lease.input().cloned());
        pause(sim, *process, plan.before).await;
        match plan.end {
            End::BeforeEffect => {
                working.ends(End::BeforeEffect);
                return Err(Stopped::before_effect("nothing happened"));
            }
            End::Suspended => {
                working.ends(End::Suspended);
                return Err(Stopped::suspend(plan.after));
            }
            _ => {}
        }
        tx.charge(*call);
        if let (Some(engine), Some(other)) = (&engine, &self.other)
            && let Err(error) = self.enqueue_in(engine, other, &mut tx, lease.fence()).await
        {
            working.ends(End::Unknown);
            return Err(Stopped::from(error));
        }
        pause(sim, *process, plan.after).await;
        working.ends(plan.end);
        ending(lease.id(), *fingerprint, *call, plan)
    }

    /// Leaves another intent to a worker, if this transaction commits.
    async fn enqueue_in(
        &self,
        engine: &Onceward,
        other: &CallPlan,
        tx: &mut SimTx,
        fence: Fence,
    ) -> onceward::Result<()> {
        let mut waiting = other.asks(&self.sim, self.process, CallMethod::EnqueueIn);
        let ask = other.ask(self.sim.variant.caller, waiting.call, None);
        let enqueued = engine.enqueue_in(tx, &ask).await?;
        if self.sim.variant.caller == CallerFlaw::SaysEnqueuedBeforeTheCommit {
            waiting.told(CallResult::Enqueued(Box::new(enqueued)));
        } else {
            lock(&self.pending).push((fence, waiting, enqueued));
        }
        Ok(())
    }
}

/// A run that commits its receipt with its own business write.
pub(super) struct Committing {
    pub(super) sim: Arc<Simulation>,
    pub(super) process: Process,
    pub(super) call: Call,
    pub(super) fingerprint: u8,
    pub(super) plan: WorkPlan,
}

impl Committing {
    pub(super) async fn work(self, lease: &Lease, working: &mut Working) -> Result<Outcome, Stopped> {
        let Self { sim, process, call, fingerprint, plan } = &self;
        let transactions = SimTransactions::new(&sim.store, *process, sim.variant.transactions);
        let working = Mutex::new(working);
        let committed = lease.transact(&transactions, |tx: SimTx| {
            let working = &working;
            async move {
                tx.charge(*call);
                pause(sim, *process, plan.after).await;
                lock(working).ends_with_commit(plan.end);
                ending(lease.id(), *fingerprint, *call, plan)
            }
        });
        let error = match committed.await {
            Ok(ran) => {
                lock(&working).committed();
                return Ok(ran.outcome);
            }
            Err(error) => error,
        };
        // Rolled back, unless the fate of the commit is not known.
        match error.applied() {
            Applied::No => {
                lock(&working).ends(End::BeforeEffect);
                Err(Stopped::before_effect(error))
            }
            Applied::Maybe => {
                lock(&working).ends(End::Unknown);
                Err(Stopped::from(error))
            }
        }
    }
}
