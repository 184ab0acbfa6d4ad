//! The first attempt fails, and the client tries again.

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failed-first",
    promise: "After a failure the same key can be tried again until it is done, with one effect in all.",
    lacks: |setup| {
        setup.check.fail_header.is_none().then_some("give a field that makes it fail with --fail-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS: u64 = 6;
/// How many try again beside it.
const AGAIN: u32 = 6;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        ROUNDS * (2 + u64::from(AGAIN) + TRIES_MAX),
        format!("{ROUNDS} times: an attempt that fails, and up to {AGAIN} beside it without the failure"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (name, value) = context.setup.check.fail_header.clone().expect("it is not lacking");
    let (mut how, mut took) = (String::new(), context.baseline().took);
    for round in 0..ROUNDS {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let fails = context.request(&key).replace(&name, value.as_str()).called("fails");
        let mut aimed = vec![Aimed::from(fails)];
        // Once alone; then with others that try again while it is running and just after it has failed.
        for number in 1..=if round == 0 { 0 } else { AGAIN } {
            let part = took * 2 / AGAIN;
            let after = part * number + context.moment(part);
            aimed.push(Aimed { after, ..context.request(&key).called("tries again").into() });
        }
        let failed = context.fire(aimed).await?.remove(0);
        // Where a failure is faster than expected the others of the next round come sooner.
        took = took.min(failed.ended - failed.sent);
        let failure = failed.answer().filter(|answer| answer.status >= 500);
        if round == 0 && failure.is_none() {
            return Err(Stop::inconclusive(format!(
                "--fail-header did not make it fail with a 5xx: {}",
                failed.ending
            )));
        }
        let last = context.retry_until_answered(context.request(&key).called("afterwards")).await?;
        let again = context.send(context.request(&key).called("retry")).await?;
        let done = last.success().is_some();
        let runs = context.runs(before, i64::from(done)).await?;
        if let Some(runs) = runs.filter(|runs| *runs > 1) {
            return Err(Stop::violated(format!(
                "after a first attempt that failed there were {runs} effects"
            )));
        }
        if done && runs == Some(0) {
            return Err(Stop::violated("it was answered as done, and no effect happened"));
        }
        how = match (last.answer(), again.answer()) {
            (Some(last), Some(again)) if done => {
                let differences = context.differences(last, again);
                if !differences.is_empty() {
                    return Err(Stop::violated(format!(
                        "one key got two answers: {}",
                        differences.join("; ")
                    )));
                }
                "it was done by the next attempt, with one effect".to_owned()
            }
            (Some(last), _)
                if failure.is_some_and(|first| (first.status, &first.body) == (last.status, &last.body)) =>
            {
                if !context.setup.check.failures_are_final {
                    return Err(Stop::violated(format!("the failure is replayed forever: {last}")));
                }
                format!("the failure is final and replayed: {}", last.status)
            }
            (Some(last), _) if last.is_held() => {
                format!("whether it took effect is unknown, and it is held: {}", last.status)
            }
            _ => {
                return Err(Stop::violated(format!(
                    "the failure burned the key; the next attempt got {}",
                    last.ending
                )));
            }
        };
    }
    Ok(how)
}
