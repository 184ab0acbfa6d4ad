//! The first attempt fails, and the client tries again.

use std::time::Duration;

use super::super::setup::Setup;
use super::super::stage::{Stage, TRIES_MAX};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failed-first",
    promise: "After a failure the same key can be tried again until it is done, with one effect in all.",
    lacks: |setup| {
        setup.check.fail_header.is_none().then_some("give a field that makes it fail with --fail-header")
    },
    plan,
    run: |stage| Box::pin(run(stage)),
};

const ROUNDS: u64 = 3;
/// How many try again.
const AGAIN: u32 = 4;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        ROUNDS * (2 + u64::from(AGAIN) + TRIES_MAX),
        format!("{ROUNDS} times: an attempt that fails, then {AGAIN} without the failure"),
    )
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let (name, value) = stage.setup.check.fail_header.clone().expect("it is not lacking");
    let mut how = String::new();
    for _ in 0..ROUNDS {
        stage.round();
        let before = stage.effects().await?;
        let key = stage.key();
        let failed = stage.send(stage.request(&key).replace(&name, value.as_str()).called("fails")).await?;
        let Some(failure) = failed.answer().filter(|answer| answer.status >= 500) else {
            return Err(Stop::inconclusive(format!(
                "--fail-header did not make it fail with a 5xx: {}",
                failed.ending
            )));
        };
        // Several try again, one after the other while the first of them is running.
        let took = stage.baseline().took;
        let mut aimed = Vec::new();
        for number in 0..AGAIN {
            let part = took / AGAIN;
            let after = if number == 0 { Duration::ZERO } else { part * number + stage.moment(part) };
            aimed.push(Aimed { after, ..stage.request(&key).called("tries again").into() });
        }
        stage.fire(aimed).await?;
        let last = stage.insist(stage.request(&key).called("afterwards")).await?;
        let again = stage.send(stage.request(&key).called("retry")).await?;
        let done = last.success().is_some();
        let runs = stage.runs(before, i64::from(done)).await?;
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
                let differences = stage.differences(last, again);
                if !differences.is_empty() {
                    return Err(Stop::violated(format!(
                        "one key got two answers: {}",
                        differences.join("; ")
                    )));
                }
                "it was done by the next attempt, with one effect".to_owned()
            }
            (Some(last), _) if last.status == failure.status && last.body == failure.body => {
                if !stage.setup.check.failures_are_final {
                    return Err(Stop::violated(format!("the failure is replayed for ever: {last}")));
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
