//! Simulated callers: they use `run`, `claim`, `enqueue` or a transaction, disconnect, retry, and sometimes send
//! another request with the same key.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onceward::{Answer, Ask, Attempt, Changed, Claimed, Id, Onceward, Policy, Ticket};

use super::enqueuers::{close, enqueue};

use super::executor::Process;
use super::history::{Call, CallMethod, CallResult, End, Stamp, name};
use super::mistakes;
use super::scenario::{Wanted, WorkPlan};
use super::simulation::Simulation;
use super::transaction_callers::{by_hand_in_transaction, record_in_transaction, transact};
use super::work::{Caught, Waiting, Working, outcome, pause, told, work};
use crate::broken::callers::CallerFlaw;

/// One caller: makes calls until all calls of this simulation are made.
pub(super) async fn caller(sim: Arc<Simulation>, process: Process, engine: Onceward) {
    let mut last = None;
    while sim.take_call() {
        let lease_us = u64::try_from(sim.scenario.lease_max.as_micros()).unwrap_or_default();
        let (wait, again) = sim.executor.draw(|random| (random.micros(0, lease_us), random.chance(500)));
        pause(&sim, process, wait).await;
        // After an error a caller mostly tries the very same again.
        let call_plan = last.take().filter(|_| again).unwrap_or_else(|| CallPlan::of(&sim));
        let failed = match sim.executor.draw(|random| random.weighed(&sim.scenario.ways)) {
            Wanted::Hand => by_hand(&sim, process, &engine, &call_plan).await,
            Wanted::Enqueue if call_plan.input => enqueue(&sim, process, &engine, &call_plan).await,
            Wanted::Transact => transact(&sim, process, &engine, &call_plan).await.is_none(),
            Wanted::ClaimIn => by_hand_in_transaction(&sim, process, &engine, &call_plan).await,
            Wanted::RecordIn => record_in_transaction(&sim, process, &engine, &call_plan).await,
            Wanted::Close => close(&sim, process, &engine, &call_plan).await,
            _ => by_run(&sim, process, &engine, &call_plan, WorkPlanOf::Chance).await.is_none(),
        };
        last = failed.then_some(call_plan);
    }
}

/// What a call will ask for.
pub(super) struct CallPlan {
    pub(super) id: Id,
    pub(super) fingerprint: u8,
    pub(super) policy: Arc<Policy>,
    /// Whether an input is brought along.
    pub(super) input: bool,
}

impl CallPlan {
    pub(super) fn of(sim: &Simulation) -> Self {
        sim.executor.draw(|random| {
            let intent = random.pick(&sim.scenario.intents);
            let fingerprint = u8::from(random.chance(120));
            Self { policy: random.pick(&intent.policies), id: intent.id, fingerprint, input: intent.input }
        })
    }

    pub(super) fn asks(&self, sim: &Arc<Simulation>, process: Process, way: CallMethod) -> Waiting {
        Waiting::asks(sim, process, &self.id, self.fingerprint, &self.policy, way, self.input)
    }

    pub(super) fn ask(&self, flaw: CallerFlaw, call: Call, attempt: Option<Attempt>) -> Ask {
        let fingerprint = flaw.fingerprint(self.fingerprint, call.0);
        let mut ask = Ask::new(flaw.id(&self.id), fingerprint, Arc::clone(&self.policy));
        if self.input {
            let stamp = Stamp { name: name(&self.id), fingerprint: self.fingerprint, call: call.0 };
            ask = ask.with_input(stamp.text());
        }
        match flaw.attempt(attempt) {
            Some(attempt) => ask.with_attempt(attempt),
            None => ask,
        }
    }
}

/// Where the plan of the work comes from.
pub(super) enum WorkPlanOf {
    Chance,
    This(WorkPlan),
}

/// Asks with `run`. Gives the answer, if there is one.
pub(super) async fn by_run(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
    plan: WorkPlanOf,
) -> Option<Answer> {
    let (plan, patience) = match plan {
        WorkPlanOf::This(plan) => (plan, None),
        WorkPlanOf::Chance => sim.executor.draw(|random| {
            let plan = WorkPlan::of(random, sim.scenario.lease_max);
            let impatient = random.chance(sim.scenario.impatient_per_thousand);
            let longest_us = if random.chance(500) { 3_000 } else { 200_000 };
            (plan, impatient.then(|| random.micros(0, longest_us)))
        }),
    };
    let flaw = sim.variant.caller;
    let mut waiting = call_plan.asks(sim, process, CallMethod::Run);
    let by_the_front = || mistakes::by_the_front(sim, process, call_plan, waiting.call);
    if let Some(answer) = mistakes::instead_of_asking(sim, process, call_plan).or_else(by_the_front) {
        waiting.told(told(Ok(answer.clone())));
        return Some(answer);
    }
    let (inside, call, fingerprint) = (Arc::clone(sim), waiting.call, call_plan.fingerprint);
    let work = move |lease| {
        let work = work(Arc::clone(&inside), process, call, lease, fingerprint, plan);
        if flaw == CallerFlaw::DetachesItsWork { mistakes::detached(&inside, process, work) } else { work }
    };
    // On the heap, so that going away drops it there and then.
    let asking = Caught(Box::pin(engine.run(call_plan.ask(flaw, call, None), work)));
    let answer = match patience {
        None => Some(asking.await),
        Some(patience) => within(sim, process, patience, asking).await,
    };
    let Ok(answer) = answer? else {
        waiting.told(CallResult::Panic);
        return None;
    };
    mistakes::after_asking(sim, process, engine, call_plan, call, &answer).await;
    waiting.told(told(answer.clone()));
    answer.ok()
}

/// Asks with `claim` and does everything else by hand. Says whether an error came between.
async fn by_hand(sim: &Arc<Simulation>, process: Process, engine: &Onceward, call_plan: &CallPlan) -> bool {
    let (attempt, tries, patience) = sim.executor.draw(|random| {
        let named = random.chance(500).then(|| Attempt((u128::from(random.number()) << 64) + 1));
        let impatient = random.chance(sim.scenario.impatient_per_thousand);
        (named, random.below(3) + 1, impatient.then(|| random.micros(0, 5_000)))
    });
    for _ in 0..tries {
        let way = CallMethod::Hand(attempt);
        let mut waiting = call_plan.asks(sim, process, way);
        let ask = call_plan.ask(sim.variant.caller, waiting.call, attempt);
        let claiming = Box::pin(engine.claim(ask));
        let claimed = match patience {
            None => claiming.await,
            Some(patience) => match within(sim, process, patience, claiming).await {
                Some(claimed) => claimed,
                None => return false,
            },
        };
        match claimed {
            Ok(Claimed::Granted(ticket)) => {
                let working = Working::begins(sim, process, waiting.call, ticket.fence(), None);
                waiting.told(CallResult::Ticket(ticket.fence()));
                hold(sim, process, engine, call_plan, &ticket, waiting, working).await;
                return false;
            }
            Ok(Claimed::Answered(answer)) => {
                waiting.told(CallResult::Answer(Box::new(answer)));
                return false;
            }
            Err(error) => waiting.told(told(Err(error))),
        }
        // With a name for the attempt, asking again finds a claim whose answer was lost.
        if attempt.is_none() {
            return true;
        }
    }
    true
}

/// Works under a ticket, renews it or forgets to, and ends it.
async fn hold(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
    ticket: &Ticket,
    mut waiting: Waiting,
    mut working: Working,
) {
    let (policy, flaw) = (&call_plan.policy, sim.variant.caller);
    let (plan, renews, forgets) = sim.executor.draw(|random| {
        (WorkPlan::of(random, sim.scenario.lease_max), random.chance(800), random.chance(100))
    });
    let mut left = plan.before + plan.after;
    while !left.is_zero() {
        let stretch = left.min(policy.lease() / 3);
        pause(sim, process, stretch).await;
        left -= stretch;
        if renews && !left.is_zero() && matches!(engine.renew(ticket).await, Ok(Changed::NotOwner(_))) {
            return;
        }
    }
    if forgets {
        return;
    }
    let how = match plan.end {
        End::Panicked => End::Unknown,
        End::Suspended => End::BeforeEffect,
        how => how,
    };
    if how != End::BeforeEffect {
        working.effect();
    }
    working.ends(how);
    for _ in 0..3 {
        let changed = match how {
            End::BeforeEffect => engine.release(ticket).await,
            End::Unknown if flaw == CallerFlaw::SaysNothingHappened => engine.release(ticket).await,
            End::Unknown => engine.mark_unknown(ticket).await,
            _ => {
                let plan = WorkPlan { omitted: false, ..plan };
                let outcome = outcome(&call_plan.id, call_plan.fingerprint, waiting.call, &plan);
                engine.complete(ticket, outcome).await
            }
        };
        match changed {
            Ok(Changed::Applied) => return waiting.told(CallResult::Recorded),
            Ok(Changed::NotOwner(_)) if flaw == CallerFlaw::TakesTooLateForRecorded => {
                return waiting.told(CallResult::Recorded);
            }
            Ok(Changed::NotOwner(_)) => return waiting.told(CallResult::TooLate),
            Err(error) => waiting.told(told(Err(error))),
        }
    }
}

/// Waits for a future, but not longer than this; then it is dropped.
pub(super) async fn within<F: Future + Unpin>(
    sim: &Simulation,
    process: Process,
    patience: Duration,
    mut future: F,
) -> Option<F::Output> {
    let mut timer = pin!(sim.executor.sleep(process, patience));
    poll_fn(|context| {
        if let Poll::Ready(output) = pin!(&mut future).poll(context) {
            return Poll::Ready(Some(output));
        }
        timer.as_mut().poll(context).map(|()| None)
    })
    .await
}
