//! Duplicates reach several instances of the service.

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{once, retried_once};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "several-instances",
    promise: "Duplicates that reach different instances have one effect and one answer.",
    by_key: true,
    lacks: |setup| (setup.instances.len() < 2).then_some("give more instances with --also-url"),
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 10;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let instances = setup.instances.len() as u64;
    let rounds = (rounds(setup) + setup.slow_rounds()) as u64;
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
    // The last one with slow requests: one who waits at another instance may lose patience.
    for round in 0..rounds + context.setup.slow_rounds() {
        let is_slow = round == rounds;
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let start = context.random.below(instances.len());
        let plain = context.request(&key);
        let plain = if is_slow { context.slow(plain) } else { plain };
        let request = |index: usize| {
            let index = (start + index) % instances.len();
            plain.clone().to(&instances[index]).called(label(index))
        };
        let requests = (0..context.setup.check.clients).map(request).collect();
        let shots = context.volley(requests).await?;
        let retry = |(index, place)| plain.clone().to(place).called(label(index));
        let retries = instances.iter().enumerate().map(retry).collect();
        retried_once(context, before, shots, retries).await?;
    }
    Ok(format!("{rounds} volleys over {} instances: one effect and one answer each", instances.len()))
}
