//! The same key comes back with another body.

use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::super::single_effect::once;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-body-after",
    promise: "The key of a request that is done is refused with another body, and the first answer stands.",
    lacks: |setup| setup.alt_body.is_none().then_some("give another valid body with --alt-body"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(
        4u64,
        "another body with a key of its own; then a request, the same key with the other body, a retry",
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let other = context.setup.alt_body.clone().expect("it is not lacking");
    let key = context.key();
    let alone = context.send(context.request(&key).body(other.clone()).called("other body, own key")).await?;
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
    let reused = context.send(context.request(&key).body(other).called("other body")).await?;
    if let Some(answer) = reused.success() {
        let what = match (
            first.success().is_some_and(|first| first.body == answer.body),
            context.runs(before, 1).await?,
        ) {
            (_, Some(runs)) if runs > 1 => "it ran",
            (true, _) => "it got the first one's answer",
            _ => "it was answered as done",
        };
        return Err(Stop::violated(format!("the same key with another body was not refused: {what}")));
    }
    let refusal = reused.answer().cloned();
    let retry = context.send(context.request(&key).called("retry")).await?;
    once(context, before, &[first, retry]).await?;
    match refusal {
        Some(answer) if answer.is_refusal() => {
            if answer.status != 422 {
                context.note(format!("refused with {} where the IETF draft says 422", answer.status));
            }
            Ok(format!("refused with {}, and the first answer stands", answer.status))
        }
        _ => Err(Stop::violated(format!(
            "the same key with another body was not refused but got: {}",
            reused.ending
        ))),
    }
}
