//! Duplicates reach several instances of the service.

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::once;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "several-instances",
    promise: "Duplicates that reach different instances have one effect and one answer.",
    lacks: |setup| (setup.instances.len() < 2).then_some("give more instances with --also-url"),
    plan,
    run: |context| Box::pin(run(context)),
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

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let instances = context.setup.instances.clone();
    let label = |index: usize| format!("at instance {}", index + 1);
    let before = context.effects().await?;
    let key = context.key();
    let mut shots = Vec::new();
    for (index, place) in instances.iter().enumerate() {
        shots.push(context.send(context.request(&key).to(place).called(label(index))).await?);
    }
    once(context, before, &shots).await?;
    let rounds = rounds(context.setup);
    for _ in 0..rounds {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let start = context.random.below(instances.len());
        let request = |index: usize| {
            let index = (start + index) % instances.len();
            context.request(&key).to(&instances[index]).called(label(index))
        };
        let requests = (0..context.setup.check.clients).map(request).collect();
        let mut shots = context.volley(requests).await?;
        for (index, place) in instances.iter().enumerate() {
            shots.push(context.settle(context.request(&key).to(place).called(label(index))).await?);
        }
        once(context, before, &shots).await?;
    }
    Ok(format!("{rounds} volleys over {} instances: one effect and one answer each", instances.len()))
}
