//! Simulated callers that work in transactions: claim, business write and outcome commit together, and sometimes another intent is
//! enqueued in it; or a run that has its lease commits its outcome with its business write.

use std::sync::{Arc, Mutex};

use onceward::{Answer, Applied, Enqueued, Fence, Lease, Onceward, Outcome, Recorded, Stopped};

use super::callers::{CallPlan, within};
use super::executor::{Process, lock};
use super::history::{Call, CallMethod, CallResult, End};
use super::scenario::WorkPlan;
use super::simulation::Simulation;
use super::transactions::{SimTransactions, SimTx};
use super::work::{Caught, Waiting, Working, ending, pause, told};
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
    let (plan, patience, other) = sim.executor.draw(|random| {
        let plan = WorkPlan::of(random, sim.scenario.lease_max);
        let impatient = random.chance(sim.scenario.impatient_per_thousand);
        (plan, impatient.then(|| random.micros(0, 100_000)), random.chance(300))
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
        run.work(engine, lease, tx)
    };
    let ask = call_plan.ask(sim.variant.caller, call, None);
    let asking = Caught(Box::pin(engine.transact(&transactions, ask, work)));
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
    async fn work(self, engine: Onceward, lease: Lease, mut tx: SimTx) -> Result<Outcome, Stopped> {
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
        if let Some(other) = &self.other
            && let Err(error) = self.enqueue_in(&engine, other, &mut tx, lease.fence()).await
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
