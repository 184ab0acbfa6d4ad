//! The client serialises its JSON again for the retry, with members in another order.

use super::super::fault::Cause;
use super::super::message::Answer;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::once;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "reordered-json",
    promise: "A retry with the same JSON in other bytes never runs.",
    by_key: true,
    lacks: |setup| setup.reordered.is_none().then_some("the body is no JSON object"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(1 + TRIES_MAX, "a request, and the same JSON with its members in another order")
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let reordered = context.setup.reordered.clone().expect("it is not lacking");
    let before = context.effects().await?;
    let key = context.key();
    let first = context.send(context.request(&key).called("first")).await?;
    let again = context.with_body(context.request(&key), &reordered).called("same JSON, other bytes");
    let again = context.reuse(again).await?;
    let is_replay = |answer: &Answer| first.success().is_some_and(|first| first.body == answer.body);
    match again.answer() {
        Some(answer)
            if (answer.is_refusal() || answer.is_not_now()) && !is_replay(answer) && !answer.is_held() =>
        {
            let status = answer.status;
            once(context, before, &[first]).await?;
            context.note(
                "bodies are compared by their bytes: the retry of a client that serialises again is refused",
            );
            Ok(format!("refused with {status}; no second effect"))
        }
        _ => {
            // A body that is another request to the endpoint is what the scenarios of other bodies find too.
            once(context, before, &[first, again]).await.map_err(|stop| stop.or_from(Cause::Body))?;
            Ok("replayed; no second effect".to_owned())
        }
    }
}
