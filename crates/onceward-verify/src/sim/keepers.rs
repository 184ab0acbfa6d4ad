//! Those who look after a store beside the callers: sweeps, and an operator who settles doubts.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{Onceward, Outcome, Scan, ScanOf, Settlement, State, Store, codec};

use super::executor::Process;
use super::history::{Stamp, What, name};
use super::stage::Stage;

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
        match stage.variant.sweeps {
            // A sweep that fails is tried again at the next turn.
            None => drop(engine.sweep(&sweep).await),
            Some(flaw) => drop(flaw.sweep(&*store, &sweep).await),
        }
    }
}

/// Looks for doubts now and then, and says of each whether it happened; right or wrong, its word is final.
pub(super) async fn operator(stage: Arc<Stage>, process: Process, engine: Onceward, every: Duration) {
    let of = ScanOf::Matching { scope: None, operation: None, state: Some(State::Unknown) };
    let scan = Scan { of, after: None, limit: 16 };
    loop {
        stage.executor.sleep(process, every).await;
        let Ok(page) = engine.list(&scan).await else { continue };
        for (id, found) in page.found {
            let Ok(receipt) = codec::decode(&found) else { continue };
            let Status::Unknown(unknown) = receipt.status else { continue };
            let (fence, fingerprint) = (unknown.claim.fence, unknown.claim.fingerprint.digest()[0]);
            let settlement = if stage.executor.draw(|random| random.chance(500)) {
                Settlement::NotDone
            } else {
                Settlement::Done(Outcome::succeeded(Stamp { name: name(&id), fingerprint, call: 0 }.text()))
            };
            let what = What::Settling { id: id.clone(), fence, settlement: settlement.clone() };
            stage.recorder.record(process, what);
            // If another run has taken its place, or the store fails, the next look will tell.
            let _ = engine.settle(&id, fence, &settlement, &stage.policy_of(&id)).await;
        }
    }
}
