//! The same key comes back with another body.

use super::super::fault::{Cause, FaultKind};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{once, settled};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-body-after",
    promise: "The key of a request that is done is refused with another body, and the first answer stands.",
    by_key: true,
    lacks: |setup| setup.alt_body.is_none().then_some("give another valid body with --alt-body"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(
        2 + 2 * TRIES_MAX,
        "another body with a key of its own; then a request, the same key with the other body, a retry",
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let other = context.setup.alt_body.clone().expect("it is not lacking");
    let key = context.key();
    let alone =
        context.send(context.with_body(context.request(&key), &other).called("other body, own key")).await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the other body is no valid request ({}): give one with --alt-body",
            alone.ending
        )));
    }
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let first = context.send(context.request(&key).called("first")).await?;
    let reused = context.with_body(context.request(&key), &other).called("other body");
    let reused = context.reuse(reused).await?;
    if let Some(answer) = reused.success() {
        let is_first = first.success().is_some_and(|first| first.body == answer.body);
        let (kind, what) = match (is_first, context.runs(before, 1).await?) {
            (_, Some(runs)) if runs > 1 => (FaultKind::DoubleEffect, "it ran"),
            (true, _) => (FaultKind::WrongAnswer, "it got the first one's answer"),
            _ => (FaultKind::WrongAnswer, "it was answered as done"),
        };
        // Green twice would hide the fault: the second answer is to another request.
        context.trace.is_wrong("other body");
        let why = format!("the same key with another body was not refused: {what}");
        return Err(Stop::violated(kind, why).or_from(Cause::Body));
    }
    let refusal = reused.answer().cloned();
    let answer = first.success().cloned();
    let retry = context.request(&key).called("retry");
    let shots = [first.clone(), reused.clone()];
    let retry = settled(context, before, &shots, retry, answer.as_ref()).await;
    let retry = retry.map_err(|stop| stop.or_from(Cause::Body))?;
    once(context, before, &[first, retry]).await?;
    match refusal {
        Some(answer) if (answer.is_refusal() || answer.is_not_now()) && !answer.is_overload() => {
            if answer.status != 422 {
                context.note(format!("refused with {} where the IETF draft says 422", answer.status));
            }
            Ok(format!("refused with {}, and the first answer stands", answer.status))
        }
        _ => Err(Stop::violated(
            FaultKind::WrongAnswer,
            format!("the same key with another body was not refused but got: {}", reused.ending),
        )
        .or_from(Cause::Body)),
    }
}
