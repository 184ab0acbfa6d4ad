//! What each scenario of clients lets a run meet, and what it makes of its tries.

use std::collections::HashMap;
use std::time::Duration;

use super::client_process::Ended;
use super::flaky_server::{DONE, Step};
use super::pauses::Pauses;
use super::scenarios::{ClientContext, Played};
use crate::endpoint::{Cause, FaultKind, Stop};

type Judged = Result<String, Stop>;

/// Answers after an effect that do not say that it happened.
const STATUSES: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// How long nobody listens.
const CLOSED_FOR: Duration = Duration::from_millis(300);
/// What `Retry-After` asks for.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// The same as a date, which has whole seconds: it is between this and a second less ahead.
const DATE_AHEAD_S: u64 = 3;
/// What clocks may differ by.
const EARLY: Duration = Duration::from_millis(50);
/// Runs that fail together.
const HOPELESS: usize = 8;

/// One run for each fault, with success after it.
async fn flaky(context: &mut ClientContext<'_>) -> Result<Vec<Played>, Stop> {
    if context.flaky.is_none() {
        let mut scripts: Vec<(String, Vec<Step>)> = STATUSES
            .iter()
            .map(|status| (status.to_string(), vec![Step::Answer(*status, &[], "{}"), DONE]))
            .collect();
        let in_progress = Step::Answer(409, &[("Retry-After", "1")], "{}");
        scripts.push(("409 with Retry-After".to_owned(), vec![in_progress, DONE]));
        scripts.push(("a reset connection".to_owned(), vec![Step::Reset, DONE]));
        scripts.push(("half an answer".to_owned(), vec![Step::CutOff, DONE]));
        scripts.push(("a refused connection".to_owned(), vec![Step::CloseFor(CLOSED_FOR), DONE]));
        context.flaky = Some(context.run_all(scripts).await?);
    }
    let runs = context.flaky.clone().unwrap_or_default();
    if runs.iter().all(|run| run.tries.len() < 2) {
        all_tried(&runs)?;
        return Err(Stop::NotApplicable("it never retries".to_owned()));
    }
    Ok(runs)
}

/// That every run sent something. Of one that did not, nobody knows whether it would try again.
fn all_tried(runs: &[Played]) -> Result<(), Stop> {
    let silent: Vec<&str> =
        runs.iter().filter(|run| run.tries.is_empty()).map(|run| run.label.as_str()).collect();
    if silent.is_empty() {
        return Ok(());
    }
    let (count, names) = (runs.len(), silent.join(", "));
    let said = runs.iter().find(|run| run.tries.is_empty()).map(|run| run.said.as_str()).unwrap_or_default();
    Err(Stop::inconclusive(format!("{} of {count} runs sent nothing at all ({names}){said}", silent.len())))
}

pub(super) async fn same_key(context: &mut ClientContext<'_>) -> Judged {
    let runs = match flaky(context).await {
        Ok(runs) => runs,
        Err(stop) => {
            // A try without a key is wrong, whether there is another or not.
            let runs = context.flaky.clone().unwrap_or_default();
            context.show(&runs[..runs.len().min(1)]);
            has_key(context, &runs)?;
            return Err(stop);
        }
    };
    let again: Vec<&Played> = runs.iter().filter(|run| run.tries.len() > 1).collect();
    let once: Vec<&Played> = runs.iter().filter(|run| run.tries.len() == 1).collect();
    let names = |runs: &[&Played]| runs.iter().map(|run| run.label.clone()).collect::<Vec<_>>().join(", ");
    for run in &again {
        let keys: Vec<Option<String>> =
            run.tries.iter().filter(|one| one.sent.is_some()).map(|one| context.key(one)).collect();
        if keys.windows(2).any(|pair| pair[0] != pair[1]) {
            context.show(&[(*run).clone()]);
            let why = format!(
                "after {} it tried again with another key: what was done before the answer was lost is done twice",
                run.label
            );
            return Err(Stop::violated(FaultKind::DoubleEffect, why));
        }
    }
    context.show(&[again[0].clone()]);
    has_key(context, &runs)?;
    if !once.is_empty() {
        context.note(format!("it does not try again after {}", names(&once)));
    }
    all_tried(&runs)?;
    Ok(format!("tried again after {}: the same key each time", names(&again)))
}

/// That there is a key in every try.
fn has_key(context: &ClientContext<'_>, runs: &[Played]) -> Result<(), Stop> {
    let mut sent = runs.iter().flat_map(|run| &run.tries).filter(|one| one.sent.is_some());
    if sent.any(|one| context.key(one).is_none_or(|key| key.trim_matches('"').is_empty())) {
        let why = format!(
            "it sends no key in {}: each of its tries is a request of its own",
            context.check.key_header
        );
        return Err(Stop::violated(FaultKind::DoubleEffect, why).or_from(Cause::NoKey));
    }
    Ok(())
}

pub(super) async fn same_bytes(context: &mut ClientContext<'_>) -> Judged {
    let runs = flaky(context).await?;
    for run in &runs {
        let mut sent = run.tries.iter().filter_map(|one| one.sent.as_ref());
        let Some(first) = sent.next() else { continue };
        if let Some(difference) = sent.find_map(|other| first.difference(other)) {
            context.show(std::slice::from_ref(run));
            let why = format!("after {} it sent another request: {difference}", run.label);
            return Err(Stop::violated(FaultKind::WrongAnswer, why));
        }
    }
    all_tried(&runs)?;
    let tries: usize = runs.iter().filter(|run| run.tries.len() > 1).map(|run| run.tries.len()).sum();
    Ok(format!("the same bytes in each of {tries} tries"))
}

pub(super) async fn key_per_intent(context: &mut ClientContext<'_>) -> Judged {
    let scripts = (1..=2).map(|number| (format!("intent {number}"), vec![DONE])).collect();
    let runs = context.run_all(scripts).await?;
    context.show(&runs);
    has_key(context, &runs)?;
    let all: Vec<&Played> = context.flaky.iter().flatten().chain(&runs).collect();
    let mut of: HashMap<String, &str> = HashMap::new();
    for run in &all {
        let Some(key) = run.tries.iter().find_map(|one| context.key(one)) else { continue };
        if let Some(other) = of.insert(key, &run.label) {
            let why = format!(
                "two intents ({other}, {}) had one key: the second gets the first one's answer, and is never done",
                run.label
            );
            return Err(Stop::violated(FaultKind::LostAnswer, why));
        }
    }
    all_tried(&runs)?;
    Ok(format!("{} intents had {} keys", all.len(), of.len()))
}

pub(super) async fn survives_kill(context: &mut ClientContext<'_>) -> Judged {
    let intent = context.intent();
    let killed = context.run_and_kill(&intent).await?;
    let again = context.run_again(&intent).await?;
    context.show(&[killed.clone(), again.clone()]);
    has_key(context, &[killed.clone(), again.clone()])?;
    let (Some(first), Some(second)) = (killed.tries.first(), again.tries.first()) else {
        let said = if killed.tries.is_empty() { &killed.said } else { &again.said };
        return Err(Stop::inconclusive(format!("run again for the same intent, it sent nothing{said}")));
    };
    if context.key(first) != context.key(second) {
        let why = "killed before the answer and run again for the same intent, it sent another key: what was done is done twice";
        return Err(Stop::violated(FaultKind::DoubleEffect, why));
    }
    let difference =
        first.sent.as_ref().zip(second.sent.as_ref()).and_then(|(one, other)| one.difference(other));
    if let Some(difference) = difference {
        let why = format!("killed and run again, it sent the same key with another request: {difference}");
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    }
    Ok("killed before the answer and run again: the same key and the same bytes".to_owned())
}

pub(super) async fn final_answers(context: &mut ClientContext<'_>) -> Judged {
    const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
    const PROBLEM: &[(&str, &str)] = &[("Content-Type", "application/problem+json")];
    const REPLAYED: &[(&str, &str)] = &[("Idempotent-Replayed", "true"), ("Stripe-Should-Retry", "false")];
    let finals = [
        ("201", DONE),
        ("400", Step::Answer(400, JSON, r#"{"error":"no such currency"}"#)),
        ("422", Step::Answer(422, JSON, r#"{"error":"this key was used for another request"}"#)),
    ];
    let marked = [
        ("500 that is marked as a replay", Step::Answer(500, REPLAYED, "{}")),
        (
            "409 that is marked as not retryable",
            Step::Answer(409, PROBLEM, r#"{"type":"urn:example:outcome-unknown","retryable":false}"#),
        ),
    ];
    let count = finals.len();
    let scripts =
        finals.into_iter().chain(marked).map(|(name, step)| (name.to_owned(), vec![step])).collect();
    let runs = context.run_all(scripts).await?;
    let again: Vec<&Played> = runs[..count].iter().filter(|run| run.tries.len() > 1).collect();
    if let [first, ..] = &again[..] {
        context.show(&[(*first).clone()]);
        let names: Vec<&str> = again.iter().map(|run| run.label.as_str()).collect();
        let why = format!("it tried again after {}, {} times in all", names.join(", "), first.tries.len());
        return Err(Stop::violated(FaultKind::Overload, why));
    }
    all_tried(&runs)?;
    for run in runs[count..].iter().filter(|run| run.tries.len() > 1) {
        context.note(format!("it tries again after a {}", run.label));
    }
    Ok("one try each".to_owned())
}

pub(super) async fn retry_after(context: &mut ClientContext<'_>) -> Judged {
    const FIELDS: &[(&str, &str)] = &[("Retry-After", "2")];
    let in_seconds =
        [503, 429].map(|status| (status.to_string(), vec![Step::Answer(status, FIELDS, "{}"), DONE]));
    let as_a_date = ("503 with a date".to_owned(), vec![Step::ComeAgainAt(503, DATE_AHEAD_S), DONE]);
    let scripts = in_seconds.into_iter().chain([as_a_date]).collect();
    let runs = context.run_all(scripts).await?;
    let mut waited = Vec::new();
    for run in &runs {
        if run.tries.is_empty() {
            continue;
        }
        let [first, second, ..] = &run.tries[..] else {
            context.note(format!("it does not try again after {} where Retry-After says when", run.label));
            continue;
        };
        let pause = second.at.saturating_duration_since(first.ended);
        let asked = match first.come_again_at {
            Some(date) => date.saturating_duration_since(first.ended),
            None => RETRY_AFTER,
        };
        if pause + EARLY < asked {
            context.show(std::slice::from_ref(run));
            let why =
                format!("told by {} to come again after {asked:.1?}, it came after {pause:.1?}", run.label);
            return Err(Stop::violated(FaultKind::Overload, why));
        }
        waited.push(format!("{pause:.1?} after {}, where {asked:.1?} was asked for", run.label));
    }
    all_tried(&runs)?;
    if waited.is_empty() {
        return Err(Stop::NotApplicable("it does not try again where the answer says when".to_owned()));
    }
    Ok(format!("it came again {}", waited.join("; ")))
}

/// Runs that meet nothing but 503.
async fn hopeless(context: &mut ClientContext<'_>) -> Result<Vec<Played>, Stop> {
    if context.hopeless.is_none() {
        let scripts = (1..=HOPELESS)
            .map(|number| (format!("client {number}"), vec![Step::Answer(503, &[], "{}")]))
            .collect();
        context.hopeless = Some(context.run_all(scripts).await?);
    }
    let runs = context.hopeless.clone().unwrap_or_default();
    context.show(&runs);
    all_tried(&runs)?;
    if runs.iter().all(|run| run.tries.len() < 2) {
        return Err(Stop::NotApplicable("it does not try again after a 503".to_owned()));
    }
    Ok(runs)
}

pub(super) async fn back_off(context: &mut ClientContext<'_>) -> Judged {
    let runs = hopeless(context).await?;
    let pauses = |run: &Played| -> Vec<Duration> {
        run.tries.windows(2).map(|pair| pair[1].at.saturating_duration_since(pair[0].ended)).collect()
    };
    let pauses = Pauses(runs.iter().map(pauses).collect());
    let longest = pauses.0.iter().max_by_key(|run| run.len()).expect("there are runs");
    let written: Vec<String> = longest.iter().take(8).map(|pause| format!("{pause:.1?}")).collect();
    let written = written.join(", ");
    let mut wrong = Vec::new();
    if pauses.are_none() {
        wrong.push("it comes again at once");
    } else {
        if pauses.grow() == Some(false) {
            wrong.push("its pauses do not grow");
        }
        if pauses.have_jitter() == Some(false) {
            wrong.push("its pauses have no jitter: clients that fail together come back together");
        }
    }
    if !wrong.is_empty() {
        return Err(Stop::violated(FaultKind::Overload, format!("{} ({written})", wrong.join("; "))));
    }
    if pauses.have_jitter().is_none() {
        let why = "a run did not try again, so that pauses cannot be compared";
        return Err(Stop::inconclusive(format!("{why} (of one run: {written})")));
    }
    if pauses.grow().is_none() {
        context.note("too few tries to tell whether pauses grow".to_owned());
    }
    Ok(format!("pauses with jitter, of one run: {written}"))
}

pub(super) async fn bounded_tries(context: &mut ClientContext<'_>) -> Judged {
    let runs = hopeless(context).await?;
    let most = runs.iter().map(|run| run.tries.len()).max().unwrap_or_default();
    if most > context.check.tries_max {
        let why = format!("it was still trying after {most} tries that all got 503");
        return Err(Stop::violated(FaultKind::Overload, why));
    }
    if runs.iter().any(|run| run.ended == Ended::TookTooLong) {
        let within = context.check.run_within;
        return Err(Stop::inconclusive(format!("it was still trying after {within:?}, with {most} tries")));
    }
    if runs.iter().any(|run| run.ended == Ended::Exited(true)) {
        context.note("it gives up and ends with success: a script that started it cannot tell".to_owned());
    }
    Ok(format!("it gave up after {most} tries"))
}
