//! Simulated workers: they run enqueued intents and resume abandoned ones, and their work fails, suspends and crashes
//! like that of callers.

use std::pin::pin;
use std::sync::Arc;

use onceward::{Lease, Onceward, Outcome, Policy, Stopped, Worker, WorkerOptions};

use super::executor::Process;
use super::history::{CallMethod, EventKind};
use super::scenario::{WorkPlan, Workers};
use super::simulation::Simulation;
use super::work::{Waiting, work};
use crate::broken::workers::WorkerFlaw;

/// Looks again and again, as long as its process lives.
pub(super) async fn worker(sim: Arc<Simulation>, process: Process, engine: Onceward, workers: Workers) {
    sim.recorder.record(process, EventKind::Works(workers.clone()));
    if sim.variant.worker == WorkerFlaw::NeverLook {
        return;
    }
    let Workers { every, patterns, policy } = workers;
    let options = WorkerOptions::default().with_concurrency(2).with_pause(every).with_grace(every / 4);
    let mut builder = Worker::builder(engine).with_options(options);
    for pattern in patterns {
        let (contract, inside) = (Arc::clone(&policy), Arc::clone(&sim));
        let code = move |lease| do_work(Arc::clone(&inside), process, lease, Arc::clone(&contract));
        builder = builder.with_operation(pattern, Arc::clone(&policy), code);
    }
    let worker = builder.build().expect("all patterns are right");
    worker.run_until(pin!(std::future::pending())).await;
}

/// The code of every operation in these simulations: as unreliable as that of the callers, until it is calm.
async fn do_work(
    sim: Arc<Simulation>,
    process: Process,
    lease: Lease,
    policy: Arc<Policy>,
) -> Result<Outcome, Stopped> {
    let busy = Simulation::busy(&sim);
    let lease_max = sim.scenario.lease_max;
    let plan = if sim.is_calm() {
        WorkPlan::HEALTHY
    } else {
        sim.executor.draw(|random| WorkPlan::of(random, lease_max))
    };
    let fingerprint = sim.recorder.claimed(lease.id(), lease.fence());
    let waiting = Waiting::asks(&sim, process, lease.id(), fingerprint, &policy, CallMethod::Work, false);
    let outcome = work(Arc::clone(&sim), process, waiting.call, lease, fingerprint, plan).await;
    drop((waiting, busy));
    outcome
}
