//! The check that most scenarios share: one key has one effect and one answer.

use super::fault::{Cause, FaultKind};
use super::message::{Answer, Ending, Request, Shot};
use super::scenario::Stop;
use super::scenario_context::ScenarioContext;

/// Retries one key until it is answered, with each of these in turn, and reads all its sendings as [`once`] does.
/// Effects are counted first: a second effect is the worst finding, and must not be reported as a key that is stuck.
pub(super) async fn retried_once(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    mut shots: Vec<Shot>,
    retries: Vec<Request>,
) -> Result<Answer, Stop> {
    at_most_one_effect(context, before, &shots).await?;
    for retry in retries {
        let first = shots.iter().find_map(Shot::success).cloned();
        let shot = settled(context, before, &shots, retry, first.as_ref()).await?;
        shots.push(shot);
    }
    once(context, before, &shots).await
}

/// Retries until there is an answer, after these sendings of its key. Where there never is one, a second effect is worse than
/// the key that is stuck.
pub(super) async fn settled(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    shots: &[Shot],
    retry: Request,
    first: Option<&Answer>,
) -> Result<Shot, Stop> {
    match context.settle(retry, first).await {
        Ok(shot) => Ok(shot),
        Err(stop) => {
            at_most_one_effect(context, before, shots).await?;
            Err(stop)
        }
    }
}

/// That there was no second effect so far.
pub(super) async fn at_most_one_effect(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    shots: &[Shot],
) -> Result<(), Stop> {
    match context.runs(before, 0).await? {
        Some(runs) if runs > 1 => Err(too_many(shots, runs)),
        _ => Ok(()),
    }
}

fn too_many(shots: &[Shot], runs: i64) -> Stop {
    let stop =
        Stop::violated(FaultKind::DoubleEffect, format!("{} of one key had {runs} effects", sendings(shots)));
    if overlap(shots) { stop.or_from(Cause::Race) } else { stop }
}

/// Whether some of them ran, or may have run, at the same time. What was hung up on may continue.
fn overlap(shots: &[Shot]) -> bool {
    let mut ends = shots.iter().enumerate();
    ends.any(|(index, shot)| {
        shot.ending == Ending::HungUp || shots[index + 1..].iter().any(|other| other.sent < shot.ended)
    })
}

/// Reads the sendings of one key: exactly one run since `before`, all who were answered got the same, and
/// the others were told to come again. Gives back that answer.
pub(super) async fn once(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    shots: &[Shot],
) -> Result<Answer, Stop> {
    let runs = context.runs(before, 1).await?;
    if let Some(runs) = runs.filter(|runs| *runs > 1) {
        return Err(too_many(shots, runs));
    }
    let first = same(context, shots)?;
    let is_held = others(context, shots)?;
    context.held += u64::from(is_held);
    let last = shots.last().and_then(Shot::answer);
    match (first, last) {
        (Some(_), _) if runs == Some(0) => {
            Err(Stop::violated(FaultKind::LostAnswer, "it was answered as done, and no effect happened"))
        }
        (Some(first), _) => Ok(first),
        (None, Some(last)) if context.baseline().replayed_as == Some(last.status) => {
            let status = last.status;
            context
                .is_inexact(format!("replays come with {status}"), Cause::Replay(format!("status {status}")));
            Ok(last.clone())
        }
        (None, Some(last)) if is_held => Ok(last.clone()),
        (None, _) => Err(Stop::violated(
            FaultKind::LostAnswer,
            format!(
                "none of {} was answered as done, the last one with {}",
                sendings(shots),
                shots.last().map(|shot| shot.ending.to_string()).unwrap_or_default()
            ),
        )),
    }
}

/// That all that was answered as done is one answer. An answer with the body of the first is meant as a replay, whatever
/// its status says.
fn same(context: &mut ScenarioContext<'_>, shots: &[Shot]) -> Result<Option<Answer>, Stop> {
    let Some(first) = shots.iter().find_map(Shot::success) else { return Ok(None) };
    let is_replay = |answer: &Answer| !first.body.is_empty() && answer.body == first.body;
    for again in shots.iter().filter_map(Shot::answer) {
        if again.is_success() || is_replay(again) {
            context.same_answer("one key got two answers", first, again)?;
        }
    }
    Ok(Some(first.clone()))
}

/// That those who did not get the answer were told to come again, or that an operator has to settle the key: says
/// whether it is held so.
fn others(context: &mut ScenarioContext<'_>, shots: &[Shot]) -> Result<bool, Stop> {
    let (mut unanswered, mut refused, mut is_held) = (0, None, false);
    for shot in shots {
        match &shot.ending {
            Ending::HungUp => {}
            Ending::Broke(_) | Ending::TimedOut => unanswered += 1,
            Ending::Answered(answer) if answer.is_success() => {}
            Ending::Answered(answer) if answer.is_held() => is_held = true,
            Ending::Answered(answer) if answer.is_not_now() => {
                if answer.field("retry-after").is_none() {
                    context.note(format!(
                        "{} without Retry-After: a client cannot know when to come again",
                        answer.status
                    ));
                }
            }
            Ending::Answered(answer) => refused = Some(answer),
        }
    }
    if let Some(answer) = refused {
        return Err(Stop::violated(
            FaultKind::WrongAnswer,
            format!("a sending of a key that was done got {answer}"),
        )
        .or_from(Cause::Duplicate(answer.status)));
    }
    if unanswered > 0 {
        let count = shots.len();
        return Err(Stop::Inconclusive(format!("{unanswered} of {count} requests got no answer at all")));
    }
    Ok(is_held)
}

/// How many of these were told to come again, and with which statuses.
pub(super) fn told_to_wait<'a>(shots: impl IntoIterator<Item = &'a Shot>) -> Option<String> {
    let (mut count, mut statuses) = (0, std::collections::BTreeSet::new());
    for answer in shots.into_iter().filter_map(Shot::answer).filter(|answer| answer.is_not_now()) {
        count += 1;
        statuses.insert(answer.status.to_string());
    }
    let statuses = statuses.into_iter().collect::<Vec<_>>().join(", ");
    (count > 0).then(|| format!("{count} were told to come again with {statuses}"))
}

fn sendings(shots: &[Shot]) -> String {
    if shots.len() == 1 { "one sending".to_owned() } else { format!("{} sendings", shots.len()) }
}

/// A number of effects, in words.
pub(super) fn effects(count: i64) -> String {
    if count == 1 { "1 effect".to_owned() } else { format!("{count} effects") }
}

#[cfg(test)]
#[path = "single_effect_test.rs"]
mod tests;
