//! Measures what one plain request does, and one plain retry. Every scenario is compared with it, so it runs first, and
//! the check ends if it fails.

use std::time::Instant;

use super::check::KeyNotation;
use super::error::{Error, ErrorKind, Result};
use super::message::{Answer, Shot};
use super::scenario::Plan;
use super::scenario_context::{Baseline, OtherForm, ScenarioContext};
use super::setup::Setup;

/// Plain requests, each with a key of its own.
const REQUESTS: u64 = 3;
/// One more if the key is refused in the form that was asked for, a retry, and one in the other form.
const PROBES: u64 = 3;

pub(super) fn plan(_: &Setup) -> Plan {
    Plan::new(
        REQUESTS + PROBES,
        "three requests with keys of their own, a retry, and a key in its other form",
    )
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
            "the number of effects changes without requests: no other client may use the service meanwhile",
        ));
    }
    let (mut counts, mut answers, mut took) = (vec![quiet.0], Vec::new(), Vec::new());
    let (first_key, mut at) = (context.key(), Instant::now());
    let mut last_key = first_key.clone();
    for number in 0..REQUESTS {
        last_key = if number == 0 { first_key.clone() } else { context.key() };
        let mut shot = context.send(context.request(&last_key).called("plain request")).await?;
        if number == 0 && shot.answer().is_some_and(Answer::is_refusal) && is_in_a_field(context) {
            // Perhaps only the form of the key is refused.
            let refused = shot.clone();
            (context.key_notation, at) = (other(context.key_notation), Instant::now());
            shot = context.send(context.request(&last_key).called("key in its other form")).await?;
            if shot.success().is_none() {
                return Err(unsuccessful(&refused));
            }
        }
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
            context.trace.is_wrong_but_first("plain request");
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
    let last = answers.last().expect("some were sent").clone();
    let first = (first_key, answers.swap_remove(0));
    let mut baseline = Baseline {
        first,
        unit,
        at,
        took,
        tells_apart,
        deduplicates: true,
        replayed_as: None,
        other_form: OtherForm::Unknown,
    };
    context.baseline = Some(baseline.clone());
    let retry = context.request(&last_key).called("plain retry");
    let (ran, shot) = ran_again(context, retry, &last).await?;
    baseline.deduplicates = !ran;
    let replay = shot.answer().filter(|answer| !answer.is_success() && !last.body.is_empty());
    baseline.replayed_as = replay.filter(|answer| answer.body == last.body).map(|answer| answer.status);
    if baseline.deduplicates && is_in_a_field(context) {
        baseline.other_form = other_form(context, &last_key, &last).await?;
    }
    Ok(Measured::Baseline(baseline))
}

/// Whether a retry ran, as far as effects or answers tell; and how it ended.
async fn ran_again(
    context: &mut ScenarioContext<'_>,
    retry: super::message::Request,
    first: &Answer,
) -> Result<(bool, Shot)> {
    let before = context.effects().await?;
    let shot = context.send(retry).await?;
    let ran = match context.runs(before, 0).await? {
        Some(runs) => runs > 0,
        None => {
            context.baseline().tells_apart && shot.success().is_some_and(|again| again.body != first.body)
        }
    };
    Ok((ran, shot))
}

/// What a known key is when it is written in the other form.
async fn other_form(context: &mut ScenarioContext<'_>, key: &str, first: &Answer) -> Result<OtherForm> {
    let form = context.key_notation;
    context.key_notation = other(form);
    let request = context.request(key).called("key in its other form");
    context.key_notation = form;
    let (ran, shot) = ran_again(context, request, first).await?;
    Ok(match shot.answer() {
        _ if ran => OtherForm::Another,
        Some(answer) if answer.is_refusal() && !answer.is_not_now() => OtherForm::Refused,
        Some(answer) if answer.body == first.body => OtherForm::Same,
        _ => OtherForm::Unknown,
    })
}

/// What a reader should know of the forms of keys.
pub(super) fn describe_form(context: &ScenarioContext<'_>) -> String {
    if let Some(pointer) = &context.setup.check.key_pointer {
        return format!("in the body, at {pointer}");
    }
    if let Some(name) = &context.setup.check.key_parameter {
        return format!("in the parameter {name} of the query");
    }
    let [form, other] = match context.key_notation {
        KeyNotation::Quoted => ["quoted", "raw"],
        KeyNotation::Raw => ["raw", "quoted"],
    };
    let detected = if context.key_notation == context.setup.check.key_notation {
        ""
    } else {
        " (the other form is refused)"
    };
    let known = match context.baseline.as_ref().map_or(OtherForm::Unknown, |baseline| baseline.other_form) {
        OtherForm::Same => format!("; {other}, it is the same key"),
        OtherForm::Another => format!("; {other}, it is another key"),
        OtherForm::Refused => format!("; {other}, it is refused"),
        OtherForm::Unknown => String::new(),
    };
    format!("{form}{detected}{known}")
}

fn is_in_a_field(context: &ScenarioContext<'_>) -> bool {
    context.setup.check.key_pointer.is_none() && context.setup.check.key_parameter.is_none()
}

fn other(form: KeyNotation) -> KeyNotation {
    match form {
        KeyNotation::Quoted => KeyNotation::Raw,
        KeyNotation::Raw => KeyNotation::Quoted,
    }
}

fn unsuccessful(shot: &Shot) -> Error {
    let hint = match shot.answer().map(|answer| answer.status) {
        Some(400 | 422) => " (is --body what it wants? is its key in another field: --key-header?)",
        Some(401 | 403) => " (does it want credentials? give them with --header)",
        Some(404 | 405) => " (is it the right --url and --method?)",
        _ => "",
    };
    unfit(&format!("a plain request with a new key must succeed, but: {}{hint}", shot.ending))
}

fn unfit(why: &str) -> Error {
    Error::new(ErrorKind::Unfit, why)
}
