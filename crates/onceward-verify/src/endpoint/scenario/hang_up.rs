//! The client hangs up before the answer, and comes back.

use std::time::Duration;

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{retried_once, settled};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-after-hang-up",
    promise: "A client that hung up before the answer gets it by a retry, and there is still one effect.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 10;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let rounds = (rounds(setup) + setup.slow_rounds()) as u64;
    Plan::new(
        rounds * (2 + 2 * TRIES_MAX) + setup.slow_rounds() as u64,
        format!("{rounds} times: hang up during a request, then retry"),
    )
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
        let shots = context.fire(vec![first]).await?;
        hung_up += shots.iter().filter(|shot| shot.answer().is_none()).count();
        // What was begun for the client that is gone may still be at work when the second retry comes.
        let retry = context.request(&key).called("retry");
        let early = settled(context, before, &shots, retry.clone(), None).await?;
        tokio::time::sleep(took).await;
        let shots = shots.into_iter().chain([early]).collect();
        retried_once(context, before, shots, vec![retry]).await?;
    }
    if context.setup.slow_rounds() > 0 {
        hung_up += hang_up_on_slow(context).await?;
    }
    if hung_up == 0 {
        return Err(Stop::inconclusive(
            "every answer came before we could hang up; can the request be made slower?",
        ));
    }
    Ok(format!("{hung_up} hang-ups, and each retry got the answer of the one effect"))
}

/// The same with a slow request: the first retry comes while what was begun may still be at work, the next ones when it must
/// be done. Says how many were hung up on.
async fn hang_up_on_slow(context: &mut ScenarioContext<'_>) -> Result<usize, Stop> {
    context.round();
    let took = context.slow_took().await?;
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let request = context.slow(context.request(&key));
    let moment = Some(context.moment(took / 2));
    let mut shots =
        context.fire(vec![Aimed { hang_up: moment, ..request.clone().called("hangs up").into() }]).await?;
    let unanswered = shots.iter().filter(|shot| shot.answer().is_none()).count();
    let begun = shots[0].sent;
    let retry = request.called("retry");
    shots.push(context.send(retry.clone()).await?);
    // Nobody may call a key stuck that is still worked for.
    tokio::time::sleep((took + took / 4).saturating_sub(begun.elapsed())).await;
    retried_once(context, before, shots, vec![retry]).await?;
    Ok(unanswered)
}
