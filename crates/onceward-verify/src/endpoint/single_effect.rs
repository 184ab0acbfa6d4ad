//! The check that most scenarios share: one key has one effect and one answer.

use super::message::{Answer, Ending, Request, Shot};
use super::scenario::Stop;
use super::scenario_context::ScenarioContext;

/// Retries one key until it is answered, and reads all its sendings as [`once`] does. Effects are counted first: a
/// second effect is the worst finding, and must not be reported as a key that is stuck.
pub(super) async fn retried_once(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    mut shots: Vec<Shot>,
    retry: Request,
) -> Result<Answer, Stop> {
    at_most_one_effect(context, before, &shots).await?;
    match context.settle(retry).await {
        Ok(shot) => shots.push(shot),
        Err(stop) => {
            at_most_one_effect(context, before, &shots).await?;
            return Err(stop);
        }
    }
    once(context, before, &shots).await
}

/// That there was no second effect so far.
async fn at_most_one_effect(
    context: &ScenarioContext<'_>,
    before: Option<i64>,
    shots: &[Shot],
) -> Result<(), Stop> {
    match context.runs(before, 0).await? {
        Some(runs) if runs > 1 => {
            Err(Stop::violated(format!("{} of one key had {runs} effects", sendings(shots))))
        }
        _ => Ok(()),
    }
}

/// Reads the sendings of one key: exactly one run since `before`, all who were answered got the same, and
/// the others were told to come again. Gives back that answer.
pub(super) async fn once(
    context: &mut ScenarioContext<'_>,
    before: Option<i64>,
    shots: &[Shot],
) -> Result<Answer, Stop> {
    let runs = context.runs(before, 1).await?;
    let successes: Vec<&Answer> = shots.iter().filter_map(Shot::success).collect();
    if let Some(runs) = runs.filter(|runs| *runs > 1) {
        return Err(Stop::violated(format!("{} of one key had {runs} effects", sendings(shots))));
    }
    let first = same(context, &successes)?;
    others(context, shots)?;
    match (first, runs) {
        (Some(_), Some(0)) => Err(Stop::violated("it was answered as done, and no effect happened")),
        (Some(first), _) => Ok(first),
        (None, _) => Err(Stop::violated(format!(
            "none of {} was answered as done, the last one with {}",
            sendings(shots),
            shots.last().map(|shot| shot.ending.to_string()).unwrap_or_default()
        ))),
    }
}

/// That all these answers are one.
pub(super) fn same(context: &mut ScenarioContext<'_>, answers: &[&Answer]) -> Result<Option<Answer>, Stop> {
    let Some((first, rest)) = answers.split_first() else { return Ok(None) };
    for again in rest {
        let differences = context.differences(first, again);
        if !differences.is_empty() {
            return Err(Stop::violated(format!("one key got two answers: {}", differences.join("; "))));
        }
    }
    Ok(Some((*first).clone()))
}

/// That those who did not get the answer were told to come again.
fn others(context: &mut ScenarioContext<'_>, shots: &[Shot]) -> Result<(), Stop> {
    let (mut unanswered, mut refused) = (0, None);
    for shot in shots {
        match &shot.ending {
            Ending::HungUp => {}
            Ending::Broke(_) | Ending::TimedOut => unanswered += 1,
            Ending::Answered(answer) if answer.is_success() => {}
            Ending::Answered(answer) if answer.is_not_now() => {
                if answer.field("retry-after").is_none() {
                    context.note(format!(
                        "{} without Retry-After: a client cannot know when to come again",
                        answer.status
                    ));
                }
            }
            Ending::Answered(answer) => refused = Some(answer.to_string()),
        }
    }
    if let Some(answer) = refused {
        return Err(Stop::violated(format!("a sending of a key that was done got {answer}")));
    }
    if unanswered > 0 {
        let count = shots.len();
        return Err(Stop::Inconclusive(format!("{unanswered} of {count} requests got no answer at all")));
    }
    Ok(())
}

fn sendings(shots: &[Shot]) -> String {
    if shots.len() == 1 { "one sending".to_owned() } else { format!("{} sendings", shots.len()) }
}
