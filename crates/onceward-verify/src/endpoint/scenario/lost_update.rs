//! Several clients change one resource that they have read in the same version.

use std::collections::BTreeMap;

use super::super::fault::FaultKind;
use super::super::message::{Request, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "lost-update",
    promise: "Of several changes of one version (If-Match) one wins and the others are refused; its retry is replayed.",
    by_key: true,
    lacks: |setup| setup.versioned.is_none().then_some("give a resource with an ETag with --versioned-url"),
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS: u64 = 4;
const TOGETHER: u64 = 6;

/// The last one with slow changes: the version may be compared before the work, and be another one after it.
fn rounds(setup: &Setup) -> u64 {
    ROUNDS + setup.slow_rounds() as u64
}

fn plan(setup: &Setup) -> Plan {
    let rounds = rounds(setup);
    Plan::new(
        rounds * (TOGETHER + 1 + TRIES_MAX),
        format!(
            "{rounds} times: read the ETag, {TOGETHER} changes with If-Match together, a retry of the one that won"
        ),
    )
}

/// What a change of a version that is gone gets.
const PRECONDITION_FAILED: u16 = 412;

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let rounds = rounds(context.setup);
    let mut refused: BTreeMap<u16, u64> = BTreeMap::new();
    for round in 0..rounds {
        context.round();
        for status in one_version(context, round >= ROUNDS).await? {
            *refused.entry(status).or_default() += 1;
        }
    }
    let others = match &refused.iter().collect::<Vec<_>>()[..] {
        [(status, _)] => status.to_string(),
        several => {
            let counted = several.iter().map(|(status, count)| format!("{status} ({count} times)"));
            counted.collect::<Vec<_>>().join(", ")
        }
    };
    for (status, count) in refused.iter().filter(|(status, _)| **status != PRECONDITION_FAILED) {
        let all = rounds * (TOGETHER - 1);
        context.note(format!(
            "{count} of {all} changes of a version that is gone got {status} instead of 412: a client cannot tell that it \
             has to read again"
        ));
    }
    Ok(format!(
        "{rounds} times one of {TOGETHER} changes won, the others got {others}, and its retry was replayed"
    ))
}

/// Lets changes of one version compete. Gives the statuses of those that lost.
async fn one_version(context: &mut ScenarioContext<'_>, is_slow: bool) -> Result<Vec<u16>, Stop> {
    let place = context.setup.versioned.clone().expect("it is not lacking");
    let mut read = context.plain().to(&place).called("read");
    (read.method, read.body) = ("GET".to_owned(), bytes::Bytes::new());
    let read = context.send(read).await?;
    let Some(etag) = read.success().and_then(|answer| answer.field("etag")).map(str::to_owned) else {
        return Err(Stop::inconclusive(format!("--versioned-url has no ETag: {}", read.ending)));
    };
    let body = context.setup.check.versioned_body.clone().unwrap_or_else(|| context.setup.check.body.clone());
    let mut requests: Vec<Request> = Vec::new();
    for _ in 0..TOGETHER {
        let key = context.key();
        let mut request = context.plain().to(&place).body(body.clone()).field("If-Match", etag.as_str());
        request.method = String::from("PUT");
        let request = if is_slow { context.slow(request) } else { request };
        requests.push(context.with_key(request, &key).called("change"));
    }
    let shots = context.volley(requests.clone()).await?;
    let won: Vec<usize> = (0..shots.len()).filter(|index| shots[*index].success().is_some()).collect();
    let refused = |shot: &Shot| {
        shot.is_not_now()
            || shot.answer().is_some_and(|answer| matches!(answer.status, PRECONDITION_FAILED | 428))
    };
    let [winner] = won[..] else {
        return Err(match won.len() {
            0 => {
                let why = format!(
                    "none of {TOGETHER} changes of one version was done; the last got: {}",
                    shots[shots.len() - 1].ending
                );
                Stop::violated(FaultKind::WrongAnswer, why)
            }
            count => {
                context.trace.is_wrong_but_first("change");
                let why = format!(
                    "{count} of {TOGETHER} changes of one version were answered as done: all but one are lost"
                );
                Stop::violated(FaultKind::LostAnswer, why)
            }
        });
    };
    let unanswered = shots.iter().filter(|shot| shot.answer().is_none()).count();
    if unanswered > 0 {
        let why = format!("{unanswered} of {TOGETHER} changes got no answer at all");
        return Err(Stop::inconclusive(why));
    }
    if let Some(other) = shots.iter().find(|shot| shot.success().is_none() && !refused(shot)) {
        let why = format!("a change of a version that is gone got {} instead of 412", other.ending);
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    }
    let retry = requests[winner].clone().called("retry of the one that won");
    let retry = context.settle(retry, shots[winner].success()).await?;
    match (shots[winner].success(), retry.answer()) {
        (Some(first), Some(again)) if again.is_success() || again.is_not_now() => {
            context.same_answer("the retry of a change got another answer", first, again)?;
        }
        _ => {
            return Err(Stop::violated(
                FaultKind::LostAnswer,
                format!(
                    "the retry of a change that was done got {}: its If-Match is checked before its key",
                    retry.ending
                ),
            ));
        }
    }
    let losers = shots.iter().filter(|shot| shot.success().is_none());
    Ok(losers.filter_map(Shot::answer).map(|answer| answer.status).collect())
}
