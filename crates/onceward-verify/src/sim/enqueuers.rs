//! Simulated callers that enqueue an intent for a worker, or cancel it before it begins.

use std::sync::Arc;

use onceward::{Changed, Onceward};

use super::callers::{CallPlan, within};
use super::executor::Process;
use super::history::{CallMethod, CallResult, Closing};
use super::simulation::Simulation;
use super::transaction_callers::close_in_transaction;
use super::work::pause;

/// Leaves an intent to a worker. Says whether an error came between.
pub(super) async fn enqueue(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> bool {
    let lease_us = super::executor::micros(sim.scenario.lease_max);
    let (delay, patience) = sim.executor.draw(|random| {
        let delay = random.pick(&[0, 0, lease_us / 4, lease_us]);
        let impatient = random.chance(sim.scenario.impatient_per_thousand);
        (std::time::Duration::from_micros(delay), impatient.then(|| random.micros(0, 5_000)))
    });
    let mut waiting = call_plan.asks(sim, process, CallMethod::Enqueue);
    let ask = call_plan.ask(sim.variant.caller, waiting.call, None).with_delay(delay);
    let enqueuing = Box::pin(engine.enqueue(ask));
    let enqueued = match patience {
        None => enqueuing.await,
        Some(patience) => match within(sim, process, patience, enqueuing).await {
            Some(enqueued) => enqueued,
            None => return false,
        },
    };
    let failed = enqueued.is_err();
    waiting.told(match enqueued {
        Ok(enqueued) => CallResult::Enqueued(Box::new(enqueued)),
        Err(error) => CallResult::Error(Box::new(error)),
    });
    failed
}

/// Cancels an intent, or closes it before it has begun. Says whether an error came between.
pub(super) async fn close(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> bool {
    let closing =
        if sim.executor.draw(|random| random.chance(800)) { Closing::Cancel } else { Closing::Undo };
    let otherwise = closing == Closing::Undo && sim.scenario.besides.closes_otherwise;
    if otherwise && sim.has_transactions() && sim.executor.draw(|random| random.chance(600)) {
        return close_in_transaction(sim, process, engine, call_plan).await;
    }
    let mut waiting = call_plan.asks(sim, process, CallMethod::Close(closing));
    let changed = match closing {
        Closing::Cancel => engine.cancel(&call_plan.id, &call_plan.policy).await,
        _ if otherwise => close_as_found(sim, process, engine, call_plan).await,
        _ => engine.close(&call_plan.id, &call_plan.policy).await,
    };
    let failed = changed.is_err();
    waiting.told(match changed {
        Ok(changed) => CallResult::Closed(changed == Changed::Applied),
        Err(error) => CallResult::Error(Box::new(error)),
    });
    failed
}

/// Closes what it has read, a moment later.
async fn close_as_found(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
) -> onceward::Result<Changed> {
    let found = engine.receipt(&call_plan.id).await?;
    let moment = sim.executor.draw(|random| random.micros(0, 5_000));
    pause(sim, process, moment).await;
    engine.close_found(&call_plan.id, found.as_ref(), &call_plan.policy).await
}
