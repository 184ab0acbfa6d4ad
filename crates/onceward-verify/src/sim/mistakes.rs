//! What broken callers do beside asking. Sound ones pass through here without a trace.

use std::panic::resume_unwind;
use std::sync::Arc;

use onceward::{Answer, ErrorKind, Fence, Onceward, Refusal};

use super::callers::Wish;
use super::executor::Process;
use super::history::{Call, End};
use super::stage::Stage;
use super::work::{Caught, Work, Working, pause};
use crate::broken::callers::CallerFlaw;

/// How often a caller looks whether another's record has vanished.
const LOOKS: u32 = 20;

/// The answer of a caller that has kept one.
pub(super) fn instead_of_asking(stage: &Stage, process: Process, wish: &Wish) -> Option<Answer> {
    if stage.variant.caller != CallerFlaw::KeepsAnswersForGood {
        return None;
    }
    stage.answers.load(process, &wish.id, wish.fingerprint)
}

/// Whatever a caller does wrong once it has its answer.
pub(super) async fn after_asking(
    stage: &Arc<Stage>,
    process: Process,
    engine: &Onceward,
    wish: &Wish,
    call: Call,
    answer: &onceward::Result<Answer>,
) {
    match (stage.variant.caller, answer) {
        (CallerFlaw::KeepsAnswersForGood, answer) => {
            stage.answers.keep(process, &wish.id, wish.fingerprint, answer.as_ref().ok());
        }
        (CallerFlaw::RunsWhenStoreFails, Err(error)) if error.kind() == ErrorKind::Unavailable => {
            run_unclaimed(stage, process, call, Fence(0));
        }
        (CallerFlaw::RunsWhenRecordVanishes, Ok(Answer::Refused(Refusal::InProgress { .. }))) => {
            let mut fence = Fence(0);
            for _ in 0..LOOKS {
                pause(stage, process, wish.policy.lease() / 8).await;
                match engine.receipt(&wish.id).await {
                    Ok(None) => return run_unclaimed(stage, process, call, fence),
                    Ok(Some(receipt)) => fence = receipt.status.fence(),
                    Err(_) => {}
                }
            }
        }
        _ => {}
    }
}

/// Works, with nothing in the store that says so.
fn run_unclaimed(stage: &Arc<Stage>, process: Process, call: Call, fence: Fence) {
    let mut working = Working::begins(stage, process, call, fence, None);
    working.effect();
    working.ends(End::Succeeded);
}

/// Work that goes on by itself when the future that waits for it is dropped.
pub(super) fn detached(stage: &Stage, process: Process, work: Work) -> Work {
    let (tell, told) = tokio::sync::oneshot::channel();
    stage.executor.spawn(process, async move {
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
