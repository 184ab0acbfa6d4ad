//! Duplicates reach several instances of the service.

use super::super::once::once;
use super::super::setup::Setup;
use super::super::stage::{Stage, TRIES_MAX};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "several-instances",
    promise: "Duplicates that reach different instances have one effect and one answer.",
    lacks: |setup| (setup.instances.len() < 2).then_some("give more instances with --also-url"),
    plan,
    run: |stage| Box::pin(run(stage)),
};

const ROUNDS_MAX: usize = 10;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let (rounds, instances) = (rounds(setup) as u64, setup.instances.len() as u64);
    let clients = setup.check.clients as u64;
    Plan::new(
        2 * instances + rounds * (clients + instances * TRIES_MAX),
        format!(
            "one key at {instances} instances in turn; then {rounds} volleys of {clients}, spread over them"
        ),
    )
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let instances = stage.setup.instances.clone();
    let label = |index: usize| format!("at instance {}", index + 1);
    let before = stage.effects().await?;
    let key = stage.key();
    let mut shots = Vec::new();
    for (index, place) in instances.iter().enumerate() {
        shots.push(stage.send(stage.request(&key).to(place).called(label(index))).await?);
    }
    once(stage, before, &shots).await?;
    let rounds = rounds(stage.setup);
    for _ in 0..rounds {
        stage.round();
        let before = stage.effects().await?;
        let key = stage.key();
        let start = stage.random.below(instances.len());
        let request = |index: usize| {
            let index = (start + index) % instances.len();
            stage.request(&key).to(&instances[index]).called(label(index))
        };
        let requests = (0..stage.setup.check.clients).map(request).collect();
        let mut shots = stage.volley(requests).await?;
        for (index, place) in instances.iter().enumerate() {
            shots.push(stage.settle(stage.request(&key).to(place).called(label(index))).await?);
        }
        once(stage, before, &shots).await?;
    }
    Ok(format!("{rounds} volleys over {} instances: one effect and one answer each", instances.len()))
}
