//! The same key comes with two bodies at the same moment.

use std::time::{Duration, Instant};

use super::super::fault::{Cause, FaultKind};
use super::super::message::{Answer, Ending, Request, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-body-during",
    promise: "Of two bodies under one key one wins; the other is refused, also while the first is running.",
    by_key: true,
    lacks: |setup| setup.alt_body.is_none().then_some("give another valid body with --alt-body"),
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS_MAX: usize = 6;
const EACH: usize = 2;
/// "Not now" for the body that lost, this many times after the other was done: it stays.
const STAYS_AFTER: u32 = 5;

fn rounds(setup: &Setup) -> usize {
    setup.check.rounds.min(ROUNDS_MAX)
}

fn plan(setup: &Setup) -> Plan {
    let rounds = (rounds(setup) + setup.slow_rounds()) as u64;
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
    let alone =
        context.send(context.with_body(context.request(&key), &other).called("other body, own key")).await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the other body is no valid request ({}): give one with --alt-body",
            alone.ending
        )));
    }
    let rounds = rounds(context.setup);
    let (mut overlapping, mut status) = (0, 0);
    // The last one with slow requests.
    for round in 0..rounds + context.setup.slow_rounds() {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let plain = context.request(&key);
        let plain = if round == rounds { context.slow(plain) } else { plain };
        let bodies =
            [plain.clone().called("one body"), context.with_body(plain, &other).called("other body")];
        // Every second round gives one of the bodies a start.
        let half = context.baseline().took / 2;
        let late = if round % 2 == 1 { context.moment(half) } else { Duration::ZERO };
        let mut aimed = Vec::new();
        for number in 0..2 * EACH {
            let after = if number % 2 == 1 { late } else { Duration::ZERO };
            aimed.push(Aimed { after, ..bodies[number % 2].clone().into() });
        }
        let shots = context.fire(aimed).await?;
        overlapping += shots.iter().filter(|shot| shot.sent < shots[0].ended).count() - 1;
        let early = shots.iter().find_map(Shot::success).cloned();
        let finals = finals(context, &bodies, early.as_ref()).await?;
        let done = |parity: usize| {
            let early = shots.iter().skip(parity).step_by(2);
            early.chain(&finals[parity..=parity]).find_map(Shot::success).is_some()
        };
        if done(0) && done(1) {
            let runs = context.runs(before, 1).await?;
            let kind = match runs {
                Some(runs) if runs > 1 => FaultKind::DoubleEffect,
                _ => FaultKind::WrongAnswer,
            };
            let runs = runs.map(|runs| format!(", with {}", effects(runs))).unwrap_or_default();
            context.trace.is_wrong("other body");
            let why = format!("one key was answered as done for two different bodies{runs}");
            let stop = Stop::violated(kind, why).or_from(Cause::Body);
            return Err(if kind == FaultKind::DoubleEffect { stop.or_from(Cause::Race) } else { stop });
        }
        let is_done = done(0) || done(1);
        let is_held = finals.iter().filter_map(Shot::answer).any(Answer::is_held);
        let runs = context.runs(before, i64::from(is_done)).await?;
        // A second effect is worse than a key that is stuck, which it may be, too.
        if let Some(runs) = runs.filter(|runs| *runs > 1 || (*runs == 0 && is_done)) {
            let (kind, runs) = match runs {
                0 => (FaultKind::LostAnswer, "no effect".to_owned()),
                runs => (FaultKind::DoubleEffect, effects(runs)),
            };
            let why = format!("two bodies under one key had {runs}");
            return Err(Stop::violated(kind, why).or_from(Cause::Race).or_from(Cause::Body));
        }
        if !is_done && is_held {
            context.held += 1;
            continue;
        }
        if !is_done {
            let why = format!("neither body was ever done; the last got: {}", finals[1].ending);
            return Err(Stop::violated(FaultKind::Wedged, why).or_from(Cause::Stuck));
        }
        let loser = usize::from(done(0));
        match finals[loser].answer() {
            Some(answer) if answer.is_refusal() || answer.is_not_now() => status = answer.status,
            _ => {
                let why = format!("the body that lost was not refused but got: {}", finals[loser].ending);
                return Err(Stop::violated(FaultKind::WrongAnswer, why).or_from(Cause::Body));
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

/// Retries both bodies until one is done and the other refused. Once one is done, "not now" that stays is a refusal of the
/// other.
async fn finals(
    context: &mut ScenarioContext<'_>,
    bodies: &[Request; 2],
    early: Option<&Answer>,
) -> Result<[Shot; 2], Stop> {
    // A replay of what was done in the volley is one, whatever its status says.
    let is_replay =
        |shot: &Shot| shot.answer().zip(early).is_some_and(|(answer, early)| answer.body == early.body);
    let patience = context.setup.patience();
    let (start, mut pause, mut stays) = (Instant::now(), Duration::from_millis(10), 0);
    for tries in 1.. {
        let shots = [context.send(bodies[0].clone()).await?, context.send(bodies[1].clone()).await?];
        let is_open = |shot: &Shot| shot.is_not_now() && !is_replay(shot) || shot.ending == Ending::TimedOut;
        let is_done = shots.iter().any(|shot| shot.success().is_some() || is_replay(shot));
        let is_overload = shots.iter().filter_map(Shot::answer).any(Answer::is_overload);
        stays += u32::from(is_done && !is_overload);
        if !shots.iter().any(is_open)
            || stays >= STAYS_AFTER
            || tries == TRIES_MAX
            || shots[0].sent.duration_since(start) > patience
        {
            return Ok(shots);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(patience / 20);
    }
    unreachable!("the last try returns")
}
