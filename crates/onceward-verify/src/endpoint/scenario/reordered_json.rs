//! The client serialises its JSON anew for the retry.

use super::super::once::once;
use super::super::setup::Setup;
use super::super::stage::Stage;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "reordered-json",
    promise: "A retry with the same JSON in other bytes never runs.",
    lacks: |setup| setup.reordered.is_none().then_some("the body is no JSON object"),
    plan,
    run: |stage| Box::pin(run(stage)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(2u64, "a request, and the same JSON with its members in another order")
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let reordered = stage.setup.reordered.clone().expect("it is not lacking");
    let before = stage.effects().await?;
    let key = stage.key();
    let first = stage.send(stage.request(&key).called("first")).await?;
    let again = stage.send(stage.request(&key).body(reordered).called("same JSON, other bytes")).await?;
    match again.answer() {
        Some(answer) if answer.is_refusal() && !answer.is_not_now() => {
            let status = answer.status;
            once(stage, before, &[first]).await?;
            stage.note(
                "bodies are compared by their bytes: a client that serialises anew is refused its own retry",
            );
            Ok(format!("refused with {status}; no second effect"))
        }
        _ => {
            once(stage, before, &[first, again]).await?;
            Ok("replayed: bodies are compared by value".to_owned())
        }
    }
}
