//! Simulated callers that select intents themselves and resume them as they were found: what waits, whether it is due or
//! not, and what was left by its owner.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{Onceward, Scan, ScanTarget, State};

use super::executor::Process;
use super::history::CallMethod;
use super::scenario::WorkPlan;
use super::simulation::Simulation;
use super::work::{Waiting, pause, work};

/// Resumes now and then what it finds.
pub(super) async fn resumer(sim: Arc<Simulation>, process: Process, engine: Onceward, every: Duration) {
    loop {
        sim.executor.sleep(process, every).await;
        // From then on what is left must end without it.
        if sim.is_calm() {
            return;
        }
        let state = sim.executor.draw(|random| random.pick(&[State::Waiting, State::Held]));
        let filter = onceward::Filter::default().with_state(state);
        let Ok(page) = engine.list(&Scan::new(ScanTarget::Matching(filter), 16)).await else { continue };
        for (id, found) in page.found {
            let left = match found.status {
                Status::Waiting(_) => true,
                Status::Held(_) => found.due.is_over(),
                _ => false,
            };
            let (chosen, late_us) = sim.executor.draw(|random| (random.chance(500), random.below(5_000)));
            if !left || id.is_step() || !chosen || sim.is_calm() {
                continue;
            }
            let Some(claim) = found.status.claim() else { continue };
            let (fingerprint, policy) = (claim.fingerprint.digest()[0], sim.policy_of(&id));
            let busy = Simulation::busy(&sim);
            let waiting = Waiting::asks(&sim, process, &id, fingerprint, &policy, CallMethod::Resume, false);
            // Others may be quicker meanwhile.
            pause(&sim, process, Duration::from_micros(u64::try_from(late_us).unwrap_or_default())).await;
            let plan = sim.executor.draw(|random| WorkPlan::of(random, sim.scenario.lease_max));
            let (inside, call) = (Arc::clone(&sim), waiting.call);
            let code = move |lease| work(inside, process, call, lease, fingerprint, plan);
            // If it has changed, or the store fails, the next look will tell.
            drop(engine.resume(&id, &found, policy, code).await);
            drop((waiting, busy));
        }
    }
}
