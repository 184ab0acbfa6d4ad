//! The client retries although the answer arrived.

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{once, settled};
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-after-success",
    promise: "A retry of what is done gets the same status, fields and body, and has no effect.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

const KEYS: usize = 3;
const RETRIES: usize = 2;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        KEYS as u64 * (1 + RETRIES as u64 * TRIES_MAX),
        format!("{KEYS} keys, each sent once and then {RETRIES} times more"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    for _ in 0..KEYS {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let mut shots = vec![context.send(context.request(&key).called("first")).await?];
        for _ in 0..RETRIES {
            let first = shots[0].success().cloned();
            let retry = context.request(&key).called("retry");
            let shot = settled(context, before, &shots, retry, first.as_ref()).await?;
            shots.push(shot);
        }
        once(context, before, &shots).await?;
    }
    Ok(format!("{} retries got the same status, fields and body, and had no effect", KEYS * RETRIES))
}
