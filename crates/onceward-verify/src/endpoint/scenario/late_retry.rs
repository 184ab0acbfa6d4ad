//! The first request of the run is retried at the end of the run.

use std::time::Instant;

use super::super::fault::{Cause, FaultKind};
use super::super::message::Answer;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "late-retry",
    promise: "An answer is not forgotten because much else went on meanwhile.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(setup: &Setup) -> Plan {
    let clients = setup.check.clients as u64;
    Plan::new(
        clients + 1 + TRIES_MAX,
        format!("a volley of {clients} with a key each, then a retry of the run's first request"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let clients = context.setup.check.clients;
    let (key, first, at) = early(context).await?;
    let before = context.effects().await?;
    let requests = (0..clients)
        .map(|_| {
            let key = context.key();
            context.request(&key).called("key of its own")
        })
        .collect();
    let shots = context.volley(requests).await?;
    let done = shots.iter().filter(|shot| shot.success().is_some()).count();
    let expected = i64::try_from(done).unwrap_or(i64::MAX);
    if let Some(runs) = context.runs(before, expected).await?.filter(|runs| *runs < expected) {
        let why =
            format!("{done} requests with keys of their own were answered as done, with {}", effects(runs));
        return Err(Stop::violated(FaultKind::LostAnswer, why));
    }
    let before = context.effects().await?;
    let retry = context.request(&key).called("retry of the first");
    let again = context.retry_until_replayed(retry, Some(&first)).await?;
    let age = at.elapsed();
    if context.setup.check.retention.is_some_and(|retention| age >= retention) {
        return Err(Stop::inconclusive("this machine is too busy to be done within the retention"));
    }
    if let Some(runs) = context.runs(before, 0).await?.filter(|runs| *runs > 0) {
        let why =
            format!("{age:.1?} and some keys later the first request ran again: {} more", effects(runs));
        return Err(Stop::violated(FaultKind::DoubleEffect, why).or_from(Cause::Forgotten));
    }
    if context.is_stuck(&again, Some(&first)) {
        let why = format!("{age:.1?} later the first request gets {}", again.ending);
        return Err(Stop::violated(FaultKind::Wedged, why).or_from(Cause::Stuck));
    }
    let Some(answer) = again.answer() else {
        return Err(Stop::inconclusive(format!("the late retry got no answer: {}", again.ending)));
    };
    context.same_answer(&format!("{age:.1?} later the first answer is another"), &first, answer)?;
    Ok(format!("{age:.1?} and many keys later the first answer is still the same"))
}

/// The run's first request, or a new one where that may be forgotten by now.
async fn early(context: &mut ScenarioContext<'_>) -> Result<(String, Answer, Instant), Stop> {
    let baseline = context.baseline();
    let is_kept = context.setup.check.retention.is_none_or(|retention| baseline.at.elapsed() < retention / 2)
        // What a kill of ours has lost is the finding of the crash.
        && context.killed.is_none();
    if is_kept {
        let (key, first) = baseline.first.clone();
        return Ok((key, first, baseline.at));
    }
    let (key, at) = (context.key(), Instant::now());
    let shot = context.send(context.request(&key).called("first")).await?;
    match shot.success() {
        Some(first) => Ok((key, first.clone(), at)),
        None => Err(Stop::inconclusive(format!("a plain request failed: {}", shot.ending))),
    }
}
