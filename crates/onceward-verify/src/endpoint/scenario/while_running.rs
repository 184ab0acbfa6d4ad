//! The client retries while the first request is still running.

use std::time::Duration;

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{retried_once, told_to_wait};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-while-running",
    promise: "A retry while the first is running waits for its answer or is told to come again; it never runs.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 8;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let rounds = rounds(setup) as u64;
    Plan::new(
        rounds * (3 + TRIES_MAX),
        format!("{rounds} times: a request, two more while it runs, one after it"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (mut overlapping, mut not_now) = (0, Vec::new());
    let rounds = rounds(context.setup);
    let mut took = context.baseline().took;
    for round in 0..rounds {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        // Each round looks at another part of the run.
        let part = took / u32::try_from(rounds).unwrap_or(1);
        let early = part * u32::try_from(round).unwrap_or_default() + context.moment(part);
        let mut aimed = vec![Aimed::from(context.request(&key).called("first"))];
        for after in [early, early + context.moment(Duration::from_millis(2))] {
            aimed.push(Aimed { after, ..context.request(&key).called("while it runs").into() });
        }
        let shots = context.fire(aimed).await?;
        // Where a request is faster than expected the next round comes sooner.
        took = took.min(shots[0].ended - shots[0].sent);
        overlapping += shots[1..].iter().filter(|shot| shot.sent < shots[0].ended).count();
        not_now.extend(shots.iter().filter(|shot| shot.is_not_now()).cloned());
        let retry = context.request(&key).called("afterwards");
        retried_once(context, before, shots, vec![retry]).await?;
    }
    if overlapping == 0 {
        return Err(Stop::inconclusive(format!(
            "a request takes {took:.1?}, and no other could be sent meanwhile; can it be made slower?"
        )));
    }
    let how = told_to_wait(&not_now).unwrap_or_else(|| "waited".to_owned());
    Ok(format!("{overlapping} retries came while the first was running: {how}; one effect each"))
}
