//! A completer beside the callers: it finishes what was begun and left, and its own work fails and dies like
//! any other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Completer, Lease, OnUnknown, Onceward, Outcome, Pace, Policy, Stopped};

use super::executor::Process;
use super::history::{Way, What};
use super::scenario::{OPERATION, WorkPlan};
use super::stage::Stage;
use super::work::{Waiting, work};
use crate::broken::completers::CompleterFlaw;

/// Looks again and again, as long as its process lives.
pub(super) async fn completer(stage: Arc<Stage>, process: Process, engine: Onceward, every: Duration) {
    stage.recorder.record(process, What::Completes);
    if stage.variant.completer == CompleterFlaw::NeverLook {
        return;
    }
    let lease_max = stage.scenario.lease_max;
    let policy = Policy::http().on_unknown(OnUnknown::Retry).lease(lease_max).expect("a lease within bounds");
    let policy = Arc::new(policy);
    let (contract, inside) = (Arc::clone(&policy), Arc::clone(&stage));
    let code = move |lease| complete(Arc::clone(&inside), process, lease, Arc::clone(&contract));
    // Failures are remembered no longer than it takes a lease to end, so that a calm world is soon in order.
    let pace = Pace {
        concurrency: 2,
        pause: every,
        grace: every / 4,
        backoff_min: lease_max / 8,
        backoff_max: lease_max,
    };
    let completer = Completer::new(engine).operation(OPERATION, policy, code).expect("it may be retried");
    completer.pace(pace).run_until(pin!(std::future::pending())).await;
}

/// The code of every operation in these worlds: as unreliable as that of the callers, until it is calm.
async fn complete(
    stage: Arc<Stage>,
    process: Process,
    lease: Lease,
    policy: Arc<Policy>,
) -> Result<Outcome, Stopped> {
    let busy = Stage::busy(&stage);
    let lease_max = stage.scenario.lease_max;
    let plan = if stage.is_calm() {
        WorkPlan::HEALTHY
    } else {
        stage.executor.draw(|random| WorkPlan::of(random, lease_max))
    };
    let fingerprint = stage.recorder.claimed(lease.id(), lease.fence());
    let waiting = Waiting::asks(&stage, process, lease.id(), fingerprint, &policy, Way::Complete);
    let outcome = work(Arc::clone(&stage), process, waiting.call, lease, fingerprint, plan).await;
    drop((waiting, busy));
    outcome
}
