//! The client hangs up before the answer, and comes back.

use std::time::Duration;

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::once;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-after-hang-up",
    promise: "A client that hung up before the answer gets it by a retry, and there is still one effect.",
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 10;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let rounds = rounds(setup) as u64;
    Plan::new(rounds * (1 + TRIES_MAX), format!("{rounds} times: hang up during a request, then retry"))
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let rounds = rounds(context.setup);
    let mut hung_up = 0;
    for round in 0..rounds {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let took = context.baseline().took;
        // Each round hangs up in another part of the run.
        let part = took / u32::try_from(rounds).unwrap_or(1);
        let mut moment = part * u32::try_from(round).unwrap_or_default() + context.moment(part);
        // An endpoint that answers before any timer has run out is left with the last byte.
        if hung_up == 0 && round > 0 && round + 1 == rounds {
            moment = Duration::ZERO;
        }
        let first = Aimed { hang_up: Some(moment), ..context.request(&key).called("hangs up").into() };
        let mut shots = context.fire(vec![first]).await?;
        hung_up += shots.iter().filter(|shot| shot.answer().is_none()).count();
        shots.push(context.settle(context.request(&key).called("retry")).await?);
        // What was begun for the client that is gone may still be at work.
        tokio::time::sleep(took).await;
        once(context, before, &shots).await?;
    }
    if hung_up == 0 {
        return Err(Stop::inconclusive(
            "every answer came before we could hang up; can the request be made slower?",
        ));
    }
    Ok(format!("{hung_up} hang-ups, and each retry got the answer of the one effect"))
}
