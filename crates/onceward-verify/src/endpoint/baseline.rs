//! Measures what one plain request does. Every scenario is compared with it, so it runs first, and the check ends if
//! it fails.

use std::time::Instant;

use super::error::{Error, ErrorKind, Result};
use super::message::{Answer, Shot};
use super::scenario::Plan;
use super::scenario_context::{Baseline, ScenarioContext};
use super::setup::Setup;

/// Plain requests, each with a key of its own.
const REQUESTS: u64 = 3;

pub(super) fn plan(_: &Setup) -> Plan {
    Plan::new(REQUESTS, "three requests with keys of their own, one after the other")
}

/// What the plain requests have shown.
pub(super) enum Measured {
    Baseline(Baseline),
    /// Different keys are taken for one, and why we think so. Nothing else can be checked then.
    KeysAreOne(String),
}

/// Sends a few plain requests: they must succeed, and each must have the same number of effects.
pub(super) async fn measure(context: &mut ScenarioContext<'_>) -> Result<Measured> {
    context.round();
    let quiet = (context.effects().await?, context.effects().await?);
    if quiet.0 != quiet.1 {
        return Err(unfit(
            "the number of effects changes by itself: nobody else may use the service meanwhile",
        ));
    }
    let (mut counts, mut answers, mut took) = (vec![quiet.0], Vec::new(), Vec::new());
    let (first_key, at) = (context.key(), Instant::now());
    for number in 0..REQUESTS {
        let key = if number == 0 { first_key.clone() } else { context.key() };
        let shot = context.send(context.request(&key).called("plain request")).await?;
        let Some(answer) = shot.success() else { return Err(unsuccessful(&shot)) };
        answers.push(answer.clone());
        took.push(shot.ended - shot.sent);
        context.runs(counts[0], i64::try_from(number).unwrap_or_default() + 1).await?;
        counts.push(context.effects().await?);
    }
    let deltas: Option<Vec<i64>> =
        counts.windows(2).map(|pair| Some(pair[1]? - pair[0]?)).collect::<Option<_>>();
    let unit = match deltas.as_deref() {
        None => 1,
        Some([0, ..]) => {
            return Err(unfit(
                "a request with a new key has no effect that the oracle counts: does it count the right thing?",
            ));
        }
        Some([unit, rest @ ..]) if *unit > 0 && rest.iter().all(|delta| delta == unit) => *unit,
        Some([unit, rest @ ..]) if *unit > 0 && rest.iter().all(|delta| [0, *unit].contains(delta)) => {
            let merged = rest.iter().filter(|delta| **delta == 0).count();
            return Ok(Measured::KeysAreOne(format!(
                "{merged} of {REQUESTS} requests with keys of their own had no effect and were answered as done: \
                 different keys are taken for one"
            )));
        }
        Some(deltas) => {
            return Err(unfit(&format!(
                "requests with new keys changed the number of effects by {deltas:?}: each must have the same number"
            )));
        }
    };
    let tells_apart = answers.windows(2).all(|pair: &[Answer]| pair[0].body != pair[1].body);
    // The fastest: what a busy machine adds must not move the moments that are measured by it out of a request.
    let took = took.into_iter().min().expect("some were sent");
    let first = (first_key, answers.swap_remove(0));
    Ok(Measured::Baseline(Baseline { first, unit, at, took, tells_apart }))
}

fn unsuccessful(shot: &Shot) -> Error {
    let hint = match shot.answer().map(|answer| answer.status) {
        Some(400 | 422) => " (is --body what it wants? does it want its key without quotes: --raw-key?)",
        Some(401 | 403) => " (does it want credentials? give them with --header)",
        Some(404 | 405) => " (is it the right --url and --method?)",
        _ => "",
    };
    unfit(&format!("a plain request with a new key must succeed, but: {}{hint}", shot.ending))
}

fn unfit(why: &str) -> Error {
    Error::new(ErrorKind::Unfit, why)
}
