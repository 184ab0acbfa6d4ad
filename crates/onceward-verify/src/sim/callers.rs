//! Callers: they ask by `run`, by hand, by `enqueue` or in a transaction, go away, come back, and sometimes ask
//! for something else.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onceward::{Answer, Ask, Attempt, Changed, Claimed, Id, Onceward, Policy, Ticket};

use super::enqueuers::{close, enqueue};

use super::executor::Process;
use super::history::{Call, End, Stamp, Told, Way, name};
use super::mistakes;
use super::scenario::{Wanted, WorkPlan};
use super::stage::Stage;
use super::transacting::transact;
use super::work::{Caught, Waiting, Working, outcome, pause, told, work};
use crate::broken::callers::CallerFlaw;

/// One caller: asks until all calls of this world are used up.
pub(super) async fn caller(stage: Arc<Stage>, process: Process, engine: Onceward) {
    let mut last = None;
    while stage.take_call() {
        let lease_us = u64::try_from(stage.scenario.lease_max.as_micros()).unwrap_or_default();
        let (wait, again) = stage.executor.draw(|random| (random.micros(0, lease_us), random.chance(500)));
        pause(&stage, process, wait).await;
        // After an error a caller mostly tries the very same again.
        let wish = last.take().filter(|_| again).unwrap_or_else(|| Wish::of(&stage));
        let failed = match stage.executor.draw(|random| random.weighed(&stage.scenario.ways)) {
            Wanted::Hand => by_hand(&stage, process, &engine, &wish).await,
            Wanted::Enqueue if wish.input => enqueue(&stage, process, &engine, &wish).await,
            Wanted::Transact => transact(&stage, process, &engine, &wish).await.is_none(),
            Wanted::Close => close(&stage, process, &engine, &wish).await,
            _ => by_run(&stage, process, &engine, &wish, WorkPlanOf::Chance).await.is_none(),
        };
        last = failed.then_some(wish);
    }
}

/// What somebody wants.
pub(super) struct Wish {
    pub(super) id: Id,
    pub(super) fingerprint: u8,
    pub(super) policy: Arc<Policy>,
    /// Whether an input is brought along.
    pub(super) input: bool,
}

impl Wish {
    pub(super) fn of(stage: &Stage) -> Self {
        stage.executor.draw(|random| {
            let intent = random.pick(&stage.scenario.intents);
            let fingerprint = u8::from(random.chance(120));
            Self { policy: random.pick(&intent.policies), id: intent.id, fingerprint, input: intent.input }
        })
    }

    pub(super) fn asks(&self, stage: &Arc<Stage>, process: Process, way: Way) -> Waiting {
        Waiting::asks(stage, process, &self.id, self.fingerprint, &self.policy, way, self.input)
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
    stage: &Arc<Stage>,
    process: Process,
    engine: &Onceward,
    wish: &Wish,
    plan: WorkPlanOf,
) -> Option<Answer> {
    let (plan, patience) = match plan {
        WorkPlanOf::This(plan) => (plan, None),
        WorkPlanOf::Chance => stage.executor.draw(|random| {
            let plan = WorkPlan::of(random, stage.scenario.lease_max);
            let impatient = random.chance(stage.scenario.impatient_per_thousand);
            let longest_us = if random.chance(500) { 3_000 } else { 200_000 };
            (plan, impatient.then(|| random.micros(0, longest_us)))
        }),
    };
    let flaw = stage.variant.caller;
    let mut waiting = wish.asks(stage, process, Way::Run);
    if let Some(answer) = mistakes::instead_of_asking(stage, process, wish) {
        waiting.told(told(Ok(answer.clone())));
        return Some(answer);
    }
    let (inside, call, fingerprint) = (Arc::clone(stage), waiting.call, wish.fingerprint);
    let work = move |lease| {
        let work = work(Arc::clone(&inside), process, call, lease, fingerprint, plan);
        if flaw == CallerFlaw::DetachesItsWork { mistakes::detached(&inside, process, work) } else { work }
    };
    // On the heap, so that going away drops it there and then.
    let asking = Caught(Box::pin(engine.run(wish.ask(flaw, call, None), work)));
    let answer = match patience {
        None => Some(asking.await),
        Some(patience) => within(stage, process, patience, asking).await,
    };
    let Ok(answer) = answer? else {
        waiting.told(Told::Panic);
        return None;
    };
    mistakes::after_asking(stage, process, engine, wish, call, &answer).await;
    waiting.told(told(answer.clone()));
    answer.ok()
}

/// Asks with `claim` and does everything else by hand. Says whether an error came between.
async fn by_hand(stage: &Arc<Stage>, process: Process, engine: &Onceward, wish: &Wish) -> bool {
    let (attempt, tries, patience) = stage.executor.draw(|random| {
        let named = random.chance(500).then(|| Attempt((u128::from(random.number()) << 64) + 1));
        let impatient = random.chance(stage.scenario.impatient_per_thousand);
        (named, random.below(3) + 1, impatient.then(|| random.micros(0, 5_000)))
    });
    for _ in 0..tries {
        let way = Way::Hand(attempt);
        let mut waiting = wish.asks(stage, process, way);
        let ask = wish.ask(stage.variant.caller, waiting.call, attempt);
        let claiming = Box::pin(engine.claim(ask));
        let claimed = match patience {
            None => claiming.await,
            Some(patience) => match within(stage, process, patience, claiming).await {
                Some(claimed) => claimed,
                None => return false,
            },
        };
        match claimed {
            Ok(Claimed::Granted(ticket)) => {
                let working = Working::begins(stage, process, waiting.call, ticket.fence(), None);
                waiting.told(Told::Ticket(ticket.fence()));
                hold(stage, process, engine, wish, &ticket, waiting, working).await;
                return false;
            }
            Ok(Claimed::Answered(answer)) => {
                waiting.told(Told::Answer(Box::new(answer)));
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
    stage: &Arc<Stage>,
    process: Process,
    engine: &Onceward,
    wish: &Wish,
    ticket: &Ticket,
    mut waiting: Waiting,
    mut working: Working,
) {
    let (policy, flaw) = (&wish.policy, stage.variant.caller);
    let (plan, renews, forgets) = stage.executor.draw(|random| {
        (WorkPlan::of(random, stage.scenario.lease_max), random.chance(800), random.chance(100))
    });
    let mut left = plan.before + plan.after;
    while !left.is_zero() {
        let stretch = left.min(policy.lease() / 3);
        pause(stage, process, stretch).await;
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
                let outcome = outcome(&wish.id, wish.fingerprint, waiting.call, &plan);
                engine.complete(ticket, outcome).await
            }
        };
        match changed {
            Ok(Changed::Applied) => return waiting.told(Told::Recorded),
            Ok(Changed::NotOwner(_)) if flaw == CallerFlaw::TakesTooLateForRecorded => {
                return waiting.told(Told::Recorded);
            }
            Ok(Changed::NotOwner(_)) => return waiting.told(Told::TooLate),
            Err(error) => waiting.told(told(Err(error))),
        }
    }
}

/// Waits for a future, but not longer than this; then it is dropped.
pub(super) async fn within<F: Future + Unpin>(
    stage: &Stage,
    process: Process,
    patience: Duration,
    mut future: F,
) -> Option<F::Output> {
    let mut timer = pin!(stage.executor.sleep(process, patience));
    poll_fn(|context| {
        if let Poll::Ready(output) = pin!(&mut future).poll(context) {
            return Poll::Ready(Some(output));
        }
        timer.as_mut().poll(context).map(|()| None)
    })
    .await
}
