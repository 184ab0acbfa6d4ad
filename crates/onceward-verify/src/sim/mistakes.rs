//! What broken callers do in addition to their calls. For correct callers these functions do nothing.

use std::panic::resume_unwind;
use std::sync::Arc;

use onceward::{Answer, ErrorKind, Fence, Onceward, Refusal};

use super::callers::CallPlan;
use super::executor::Process;
use super::history::{Call, End};
use super::simulation::Simulation;
use super::work::{Caught, Work, Working, pause};
use crate::broken::callers::CallerFlaw;
use crate::broken::fronts::Instead;

/// How often a caller looks whether another's record has vanished.
const LOOKS: u32 = 20;

/// What a caller makes of the front by itself: an answer, or a run without a claim.
pub(super) fn by_the_front(
    sim: &Arc<Simulation>,
    process: Process,
    call_plan: &CallPlan,
    call: Call,
) -> Option<Answer> {
    let front = sim.front.as_ref()?;
    match sim.variant.front.instead_of_asking(front, &call_plan.id) {
        Instead::Ask => None,
        Instead::Answer(answer) => Some(answer),
        Instead::Run => {
            run_unclaimed(sim, process, call, Fence(0));
            None
        }
    }
}

/// The answer of a caller that has kept one.
pub(super) fn instead_of_asking(sim: &Simulation, process: Process, call_plan: &CallPlan) -> Option<Answer> {
    if sim.variant.caller != CallerFlaw::KeepsAnswersForGood {
        return None;
    }
    sim.answers.load(process, &call_plan.id, call_plan.fingerprint)
}

/// Whatever a caller does wrong once it has its answer.
pub(super) async fn after_asking(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    call_plan: &CallPlan,
    call: Call,
    answer: &onceward::Result<Answer>,
) {
    match (sim.variant.caller, answer) {
        (CallerFlaw::KeepsAnswersForGood, answer) => {
            sim.answers.keep(process, &call_plan.id, call_plan.fingerprint, answer.as_ref().ok());
        }
        (CallerFlaw::RunsWhenStoreFails, Err(error)) if error.kind() == ErrorKind::Unavailable => {
            run_unclaimed(sim, process, call, Fence(0));
        }
        (CallerFlaw::RunsWhenRecordVanishes, Ok(Answer::Refused(Refusal::InProgress { .. }))) => {
            let mut fence = Fence(0);
            for _ in 0..LOOKS {
                pause(sim, process, call_plan.policy.lease() / 8).await;
                match engine.receipt(&call_plan.id).await {
                    Ok(None) => return run_unclaimed(sim, process, call, fence),
                    Ok(Some(receipt)) => fence = receipt.status.fence(),
                    Err(_) => {}
                }
            }
        }
        _ => {}
    }
}

/// Works, with nothing in the store that says so.
fn run_unclaimed(sim: &Arc<Simulation>, process: Process, call: Call, fence: Fence) {
    let mut working = Working::begins(sim, process, call, fence, None);
    working.effect();
    working.ends(End::Succeeded);
}

/// Work that continues by itself when the future that waits for it is dropped.
pub(super) fn detached(sim: &Simulation, process: Process, work: Work) -> Work {
    let (tell, told) = tokio::sync::oneshot::channel();
    sim.executor.spawn(process, async move {
        // Nobody may be left to hear of it: that is the mistake.
        let _ = tell.send(Caught(work).await);
    });
    Box::pin(async move {
        match told.await {
            Ok(Ok(ended)) => ended,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => std::future::pending().await,
        }
    })
}
