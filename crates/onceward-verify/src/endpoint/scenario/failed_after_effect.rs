//! The effect happens, and then the answer is a failure: a timeout layer, a lost database connection, an overloaded hop.

use std::time::{Duration, Instant};

use super::super::fault::{Cause, FaultKind};
use super::super::message::{Answer, Request, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failed-after-effect",
    promise: "A failure after the effect does not free the key: no retry has a second effect, and the key is not stuck.",
    by_key: true,
    lacks: |setup| {
        if setup.check.fail_after_effect_headers.is_empty() {
            return Some("give a field that makes it fail after its effect with --fail-after-effect-header");
        }
        // Failures look the same whether there was an effect or not.
        (!setup.oracle.sees())
            .then_some("effects must be counted: --effects-url, --effects-cmd or --effects-sql")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

/// Statuses that a service or a hop answers with after the work began.
const STATUSES: [u16; 5] = [408, 500, 502, 503, 504];
/// `Retry-After` is waited for, but not for longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// Every field with its value: one for each status, where the value has a place for it.
fn hooks(setup: &Setup) -> Vec<(String, String)> {
    let of_hook = |(name, value): &(String, String)| {
        // Without a place for it, the endpoint chooses the status.
        let count = if value.contains(PLACEHOLDER) { STATUSES.len() } else { 1 };
        let filled = |status: &u16| (name.clone(), value.replace(PLACEHOLDER, &status.to_string()));
        STATUSES[..count].iter().map(filled).collect::<Vec<_>>()
    };
    setup.check.fail_after_effect_headers.iter().flat_map(of_hook).collect()
}

/// What stands for the status in the value of the field.
const PLACEHOLDER: &str = "{status}";

fn plan(setup: &Setup) -> Plan {
    let count = hooks(setup).len() as u64;
    Plan::new(
        count * (3 + TRIES_MAX),
        format!(
            "{count} times: a request that fails after its effect; retries at once and after lease and Retry-After"
        ),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let hooks = hooks(context.setup);
    let count = hooks.len();
    let (mut held, mut replayed) = (0, 0);
    // One wait for the lease of all of them.
    let (mut failed, begun) = (Vec::new(), Instant::now());
    for (name, value) in &hooks {
        failed.push(fail(context, name, value).await?);
    }
    let asked =
        failed.iter().filter_map(|(_, shot)| shot.answer()?.retry_after_s()).max().unwrap_or_default();
    let lease = context.setup.check.lease;
    let asked = Duration::from_secs(asked);
    let waits = (lease + lease / 5).max(asked.min(RETRY_AFTER_MAX));
    if asked > waits {
        context.note(format!("Retry-After asks for {asked:?}; the retries came after {waits:?}"));
    }
    tokio::time::sleep(waits).await;
    let forgotten = context.setup.check.retention.is_some_and(|retention| begun.elapsed() >= retention);
    if forgotten {
        return Err(Stop::inconclusive("lease and Retry-After are longer than the retention"));
    }
    for (request, first) in failed {
        context.round();
        let before = context.effects().await?;
        let start = Instant::now();
        let request = request.called("retry after the lease");
        let failure = first.answer().cloned();
        let has_its_body = |answer: &Answer| {
            failure.as_ref().is_some_and(|first| !first.body.is_empty() && first.body == answer.body)
        };
        let is_final = |answer: &Answer| {
            let is_same = failure.as_ref().is_some_and(|first| answer.is_like(first));
            !answer.is_not_now() || is_same || has_its_body(answer)
        };
        let last = context.retry_until(request, is_final).await?;
        if let Some(runs) = context.runs(before, 0).await?.filter(|runs| *runs > 0) {
            return Err(second_effect(&first, 1 + runs, "after the lease").or_from(Cause::Forgotten));
        }
        match last.answer() {
            Some(answer) if answer.is_held() => held += 1,
            Some(answer) if answer.is_success() => {}
            Some(answer) if first.answer().is_some_and(|first| answer.is_like(first)) => replayed += 1,
            Some(answer) if has_its_body(answer) => {
                let first = failure.as_ref().expect("it has a body");
                context.same_answer("the failure is replayed as another answer", first, answer)?;
            }
            Some(answer) if answer.is_not_now() => {
                let waited = start.elapsed() + lease + lease / 5;
                return Err(context.wedged(&last, waited).or_from(Cause::Stuck));
            }
            _ => {
                let why = format!(
                    "answered with {} after its effect, the key then got {}",
                    first.ending, last.ending
                );
                return Err(Stop::violated(FaultKind::LostAnswer, why));
            }
        }
    }
    if replayed > 0 {
        context.note("the failure is the final answer: no retry tells the client that it was done");
    }
    if held > 0 {
        return Err(Stop::Held(format!(
            "{count} failures after the effect, one effect each; {held} of {count} keys are held as unknown until a \
             person settles them"
        )));
    }
    Ok(format!("{count} failures after the effect, one effect each; {replayed} of them are final"))
}

/// A request that fails after its effect, and a retry at once. Gives the request and the failure.
async fn fail(context: &mut ScenarioContext<'_>, name: &str, value: &str) -> Result<(Request, Shot), Stop> {
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let request = context.request(&key).replace(name, value);
    let first = context.send(request.clone().called("fails after its effect")).await?;
    if first.success().is_some() {
        let why = format!("--fail-after-effect-header {name} did not make it fail: {}", first.ending);
        return Err(Stop::inconclusive(why));
    }
    if context.runs(before, 1).await? == Some(0) {
        let why = format!("--fail-after-effect-header {name} made it fail without an effect");
        return Err(Stop::inconclusive(why));
    }
    // A retry is the same request: an endpoint may compare its fields.
    for _ in 0..2 {
        context.send(request.clone().called("retry")).await?;
    }
    match context.runs(before, 1).await?.filter(|runs| *runs > 1) {
        Some(runs) => Err(second_effect(&first, runs, "at once")),
        None => Ok((request, first)),
    }
}

fn second_effect(first: &Shot, runs: i64, when: &str) -> Stop {
    Stop::violated(
        FaultKind::DoubleEffect,
        format!(
            "answered with {} after its effect, and a retry {when} ran: {} in all",
            first.ending,
            effects(runs)
        ),
    )
}
