//! The first attempt fails, and the client tries again.

use super::super::fault::{Cause, FaultKind};
use super::super::message::Shot;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failed-first",
    promise: "After a failure the same key can be tried again until it is done, with one effect in all.",
    by_key: true,
    lacks: |setup| {
        setup.check.fail_headers.is_empty().then_some("give a field that makes it fail with --fail-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS: u64 = 6;
/// How many try again beside it.
const AGAIN: u32 = 6;

/// The last one with an attempt that is slow to fail.
fn rounds(setup: &Setup) -> u64 {
    ROUNDS + setup.slow_rounds() as u64
}

fn plan(setup: &Setup) -> Plan {
    let hooks = setup.check.fail_headers.len() as u64;
    Plan::new(
        hooks * rounds(setup) * (2 + u64::from(AGAIN) + 2 * TRIES_MAX),
        format!(
            "{} times: an attempt that fails, and up to {AGAIN} beside it without the failure",
            hooks * rounds(setup)
        ),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (mut ways, mut held) = (Vec::new(), 0);
    let hooks = context.setup.check.fail_headers.clone();
    for hook in &hooks {
        let way = fail_with(context, hook, &mut held).await?;
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let tries = hooks.len() as u64 * rounds(context.setup);
    if held > 0 {
        return Err(Stop::Held(format!(
            "{tries} failures and at most one effect each; {held} of {tries} keys are held as unknown until a person \
             settles them"
        )));
    }
    Ok(ways.join("; "))
}

/// Lets attempts fail in one way. Says what became of their keys.
async fn fail_with(
    context: &mut ScenarioContext<'_>,
    (name, value): &(String, String),
    held: &mut u64,
) -> Result<String, Stop> {
    let (mut how, mut took) = (String::new(), context.baseline().took);
    for round in 0..rounds(context.setup) {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let fails = context.request(&key).replace(name, value.as_str()).called("fails");
        let fails = if round == ROUNDS { context.slow(fails) } else { fails };
        let mut aimed = vec![Aimed::from(fails)];
        // Once alone; then with others that try again while it is running and just after it has failed.
        for number in 1..=if round == 0 { 0 } else { AGAIN } {
            let part = took * 2 / AGAIN;
            let after = part * number + context.moment(part);
            aimed.push(Aimed { after, ..context.request(&key).called("tries again").into() });
        }
        let is_alone = aimed.len() == 1;
        let shots = context.fire(aimed).await?;
        let beside = shots.iter().find_map(Shot::success).cloned();
        let failed = &shots[0];
        // Where a failure is faster than expected the others of the next round come sooner.
        took = took.min(failed.ended - failed.sent);
        let failure = failed.answer().filter(|answer| answer.is_failure() || answer.status >= 500);
        if round == 0 && failure.is_none() {
            return Err(Stop::inconclusive(format!(
                "--fail-header {name} did not make it fail with a 5xx: {}",
                failed.ending
            )));
        }
        let last = context.request(&key).called("afterwards");
        let last = context.retry_until_replayed(last, beside.as_ref()).await?;
        let answer = beside.or_else(|| last.success().cloned());
        let done = answer.is_some();
        let retry = context.request(&key).called("retry");
        // What is wrong with the retry of what is done, if it is never answered.
        let again = match &answer {
            Some(answer) => context.settle(retry, Some(answer)).await,
            None => context.send(retry).await,
        };
        let runs = context.runs(before, i64::from(done)).await?;
        if let Some(runs) = runs.filter(|runs| *runs > 1) {
            let why = format!("after a first attempt that failed there were {}", effects(runs));
            let stop = Stop::violated(FaultKind::DoubleEffect, why);
            return Err(if is_alone { stop } else { stop.or_from(Cause::Race) });
        }
        if done && runs == Some(0) {
            let why = "it was answered as done, and no effect happened";
            return Err(Stop::violated(FaultKind::LostAnswer, why));
        }
        let again = again?;
        how = match (last.answer(), again.answer()) {
            (Some(last), Some(again)) if done => {
                let answer = answer.as_ref().expect("it was done");
                context.same_answer("one key got two answers", answer, last)?;
                context.same_answer("one key got two answers", answer, again)?;
                "it was done by the next attempt, with one effect".to_owned()
            }
            (Some(last), _) if failure.is_some_and(|first| first.is_like(last)) => {
                if !context.setup.check.failures_are_final {
                    let why = format!("the failure is replayed forever: {last}");
                    return Err(Stop::violated(FaultKind::Wedged, why));
                }
                format!("the failure is final and replayed: {}", last.status)
            }
            (Some(last), _) if last.is_held() => {
                *held += 1;
                format!("whether it took effect is unknown, and it is held: {}", last.status)
            }
            _ => {
                let why = format!("the failure burned the key; the next attempt got {}", last.ending);
                let stop = Stop::violated(FaultKind::Wedged, why);
                return Err(if last.is_not_now() { stop.or_from(Cause::Stuck) } else { stop });
            }
        };
    }
    Ok(how)
}
