//! Many clients send the same request at the same moment.

use std::time::Duration;

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{retried_once, told_to_wait};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "simultaneous-duplicates",
    promise: "However many send the same request at the same moment, it has one effect and one answer.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

/// No request is spread over more than this: the windows to be hit are at its beginning and its end.
const SPREAD_MAX: Duration = Duration::from_millis(100);

fn plan(setup: &Setup) -> Plan {
    let (clients, rounds) = (setup.check.clients as u64, setup.check.rounds as u64);
    Plan::new(
        rounds * (clients + TRIES_MAX),
        format!("{rounds} volleys of {clients}, one key each, then a retry"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (clients, rounds) = (context.setup.check.clients, context.setup.check.rounds);
    let mut shots_so_far = Vec::new();
    for round in 0..rounds {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let request = context.request(&key).called("duplicate");
        // Every third volley is strewn over the time that the first one takes: some mistakes have their
        // window at the end of the work.
        let over = if round % 3 == 2 { context.baseline().took.min(SPREAD_MAX) } else { Duration::ZERO };
        let mut aimed = Vec::with_capacity(clients);
        for number in 0..clients {
            let after = if number == 0 { Duration::ZERO } else { context.moment(over) };
            aimed.push(Aimed { after, ..request.clone().into() });
        }
        let shots = context.fire(aimed).await?;
        shots_so_far.extend(shots.iter().filter(|shot| shot.is_not_now()).cloned());
        retried_once(context, before, shots, vec![request.called("retry")]).await?;
    }
    let waited = told_to_wait(&shots_so_far).unwrap_or_else(|| "all got it".to_owned());
    Ok(format!("{rounds} volleys of {clients}: one effect and one answer each; {waited}"))
}
