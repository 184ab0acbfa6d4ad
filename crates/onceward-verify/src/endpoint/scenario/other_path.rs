//! The same key is used for another endpoint.

use super::super::fault::FaultKind;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-path",
    promise: "A key that was used at one endpoint is never answered with that at another.",
    by_key: true,
    lacks: |setup| setup.other.is_none().then_some("give another endpoint with --other-url"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(2 + TRIES_MAX, "one request to the other endpoint; then both endpoints with the same key")
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let place = context.setup.other.clone().expect("it is not lacking");
    let (key, before) = (context.key(), context.effects().await?);
    let alone = context.send(context.request(&key).to(&place).called("other path, own key")).await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the other endpoint does not take this request: {}",
            alone.ending
        )));
    }
    let counts = context.runs(before, 1).await?.is_some_and(|runs| runs == 1);
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let first = context.send(context.request(&key).called("one path")).await?;
    let other = context.reuse(context.request(&key).to(&place).called("other path")).await?;
    let (first, second) = match (first.success(), other.answer()) {
        (Some(_), Some(second))
            if second.is_refusal() && !second.is_overload()
                || second.is_not_now() && !second.is_overload() =>
        {
            return Ok(format!("refused with {}: a key is for one endpoint", second.status));
        }
        (Some(first), Some(second)) if second.is_success() => (first, second),
        (Some(_), _) => {
            let why = format!("the key of another path got: {}", other.ending);
            return Err(Stop::violated(FaultKind::WrongAnswer, why));
        }
        (None, _) => return Err(Stop::inconclusive(format!("the first request failed: {}", first.ending))),
    };
    if context.baseline().tells_apart && first.body == second.body {
        context.trace.is_wrong("other path");
        return Err(Stop::violated(FaultKind::WrongAnswer, "the other path got the first one's answer"));
    }
    // Effects of the other endpoint may be counted elsewhere.
    match context.runs(before, if counts { 2 } else { 1 }).await? {
        Some(runs) if counts && runs != 2 => {
            let kind = if runs > 2 { FaultKind::DoubleEffect } else { FaultKind::LostAnswer };
            Err(Stop::violated(
                kind,
                format!("two endpoints with one key had {} instead of 2", effects(runs)),
            ))
        }
        None if !context.baseline().tells_apart => {
            Err(Stop::inconclusive("effects are not counted, and all answers look the same"))
        }
        _ => Ok("both ran, and each got its own answer".to_owned()),
    }
}
