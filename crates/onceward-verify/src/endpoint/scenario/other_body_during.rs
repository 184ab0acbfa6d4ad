//! The same key comes with two bodies at the same moment.

use super::super::message::Shot;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-body-during",
    promise: "Of two bodies under one key one wins; the other is refused, also while the first is running.",
    lacks: |setup| setup.alt_body.is_none().then_some("give another valid body with --alt-body"),
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 6;
const EACH: usize = 2;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let rounds = rounds(setup) as u64;
    let each = EACH as u64;
    Plan::new(
        1 + rounds * 2 * (each + TRIES_MAX),
        format!(
            "{rounds} volleys of {each} and {each} requests that differ in their bodies, then a retry of both"
        ),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let other = context.setup.alt_body.clone().expect("it is not lacking");
    let key = context.key();
    let alone = context.send(context.request(&key).body(other.clone()).called("other body, own key")).await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the other body is no valid request ({}): give one with --alt-body",
            alone.ending
        )));
    }
    let rounds = rounds(context.setup);
    let (mut overlapping, mut status) = (0, 0);
    for round in 0..rounds {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let bodies = [
            context.request(&key).called("one body"),
            context.request(&key).body(other.clone()).called("other body"),
        ];
        // Every second round gives one of the bodies a start.
        let half = context.baseline().took / 2;
        let late = if round % 2 == 1 { context.moment(half) } else { std::time::Duration::ZERO };
        let mut aimed = Vec::new();
        for number in 0..2 * EACH {
            let after = if number % 2 == 1 { late } else { std::time::Duration::ZERO };
            aimed.push(Aimed { after, ..bodies[number % 2].clone().into() });
        }
        let shots = context.fire(aimed).await?;
        overlapping += shots.iter().filter(|shot| shot.sent < shots[0].ended).count() - 1;
        let [one, other] = bodies;
        let finals = [context.retry_until_answered(one).await?, context.retry_until_answered(other).await?];
        let done = |parity: usize| {
            let early = shots.iter().skip(parity).step_by(2);
            early.chain(&finals[parity..=parity]).find_map(Shot::success).is_some()
        };
        if done(0) && done(1) {
            let runs = context.runs(before, 1).await?;
            let runs = runs.map(|runs| format!("; there were {runs} effects")).unwrap_or_default();
            return Err(Stop::violated(format!(
                "one key was answered as done for two different bodies{runs}"
            )));
        }
        if !done(0) && !done(1) {
            return Err(Stop::violated(format!(
                "neither body was ever done; the last got: {}",
                finals[1].ending
            )));
        }
        if let Some(runs) = context.runs(before, 1).await?.filter(|runs| *runs != 1) {
            return Err(Stop::violated(format!("two bodies under one key had {runs} effects")));
        }
        let loser = usize::from(done(0));
        match finals[loser].answer() {
            Some(answer) if answer.is_refusal() => status = answer.status,
            _ => {
                return Err(Stop::violated(format!(
                    "the body that lost was not refused but got: {}",
                    finals[loser].ending
                )));
            }
        }
    }
    if overlapping == 0 {
        return Err(Stop::inconclusive(
            "no two requests were running at the same time; can the request be made slower?",
        ));
    }
    Ok(format!("{rounds} volleys: one body won, and the other was refused with {status}"))
}
