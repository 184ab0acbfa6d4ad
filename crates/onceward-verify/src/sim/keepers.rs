//! Those who look after a store beside the callers: sweeps, and an operator who decides about doubts and dead
//! letters.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::{Claim, Status};
use onceward::{Changed, Filter, Id, Onceward, Outcome, Scan, ScanTarget, Settlement, State, Store, codec};

use super::callers::Wish;
use super::executor::Process;
use super::history::{Closing, Stamp, Told, Way, What, name};
use super::stage::Stage;
use crate::broken::operators::OperatorFlaw;

/// Sweeps now and then.
pub(super) async fn sweeper(
    stage: Arc<Stage>,
    process: Process,
    engine: Onceward,
    store: Arc<dyn Store>,
    every: Duration,
) {
    loop {
        stage.executor.sleep(process, every).await;
        let sweep = stage.executor.draw(|random| stage.scenario.sweep(random));
        stage.recorder.record(process, What::Sweeps);
        match stage.variant.sweeps {
            // A sweep that fails is tried again at the next turn.
            None => drop(engine.sweep(&sweep).await),
            Some(flaw) => drop(flaw.sweep(&*store, &sweep).await),
        }
    }
}

/// Looks for doubts and dead letters now and then, and decides about each; right or wrong, its word is final.
pub(super) async fn operator(stage: Arc<Stage>, process: Process, engine: Onceward, every: Duration) {
    loop {
        stage.executor.sleep(process, every).await;
        // Once nothing is faulty any more, everything is to come to its end without help.
        if stage.is_calm() {
            return;
        }
        let wanted = stage.executor.draw(|random| random.pick(&[State::Unknown, State::Dead]));
        let filter = Filter::default().with_state(wanted);
        let query = Scan::new(ScanTarget::Matching(filter), 16);
        let Ok(page) = engine.list(&query).await else { continue };
        for (id, found) in page.found {
            let Ok(receipt) = codec::decode(&found) else { continue };
            match &receipt.status {
                Status::Unknown(unknown) => {
                    settle_by_chance(&stage, process, &engine, &id, &unknown.claim).await;
                }
                Status::Dead(dead) => {
                    let chance = stage.executor.draw(|random| random.below(4));
                    match chance {
                        0 => decide(&stage, process, &engine, &id, Closing::Discard).await,
                        1 => settle_by_chance(&stage, process, &engine, &id, &dead.claim).await,
                        _ => decide(&stage, process, &engine, &id, Closing::Retry).await,
                    }
                }
                _ => {}
            }
        }
    }
}

async fn settle_by_chance(stage: &Stage, process: Process, engine: &Onceward, id: &Id, claim: &Claim) {
    let fingerprint = claim.fingerprint.digest()[0];
    let settlement = match stage.executor.draw(|random| random.below(20)) {
        0..10 => Settlement::NotDone,
        10 => Settlement::ForceNotDone,
        _ => Settlement::Done(Outcome::succeeded(Stamp { name: name(id), fingerprint, call: 0 }.text())),
    };
    settle(stage, process, engine, id, claim, settlement).await;
}

/// Says what became of a run. If another run has taken its place, or the store fails, the next look will tell.
pub(super) async fn settle(
    stage: &Stage,
    process: Process,
    engine: &Onceward,
    id: &Id,
    claim: &Claim,
    mut settlement: Settlement,
) {
    let said = What::Settling { id: id.clone(), fence: claim.fence, settlement: settlement.clone() };
    stage.recorder.record(process, said);
    if stage.variant.operator == OperatorFlaw::SettlesBeforeLateEffects && settlement == Settlement::NotDone {
        settlement = Settlement::ForceNotDone;
    }
    let _ = engine.settle(id, claim.fence, &settlement, &stage.policy_of(id)).await;
}

/// Discards a dead letter, or has it tried again.
pub(super) async fn decide(
    stage: &Arc<Stage>,
    process: Process,
    engine: &Onceward,
    id: &Id,
    closing: Closing,
) {
    let wish = Wish { id: id.clone(), fingerprint: 0, policy: stage.policy_of(id), input: false };
    let mut waiting = wish.asks(stage, process, Way::Close(closing));
    let changed = match closing {
        Closing::Discard => engine.discard_dead(id, &wish.policy).await,
        _ => engine.retry_dead(id).await,
    };
    waiting.told(match changed {
        Ok(changed) => Told::Closed(changed == Changed::Applied),
        Err(error) => Told::Error(Box::new(error)),
    });
}
