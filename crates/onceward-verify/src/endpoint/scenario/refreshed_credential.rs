//! The client's credential is refreshed between a request and its retry.

use super::super::fault::FaultKind;
use super::super::message::Answer;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{once, settled};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "refreshed-credential",
    promise: "A retry with a refreshed credential of the same client is a retry: it does not run.",
    by_key: true,
    lacks: |setup| {
        setup.check.refreshed.is_none().then_some("give the refreshed credential with --refreshed-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(1 + 2 * TRIES_MAX, "a request, a retry with the refreshed credential, and one with the first")
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (name, value) = context.setup.check.refreshed.clone().expect("it is not lacking");
    let before = context.effects().await?;
    let key = context.key();
    let first = context.send(context.request(&key).called("first")).await?;
    let retry = context.request(&key).replace(&name, value.as_str()).called("refreshed credential");
    let answer = first.success().cloned();
    let shots = std::slice::from_ref(&first);
    let refreshed = settled(context, before, shots, retry, answer.as_ref()).await?;
    if let Some(answer) = refreshed.answer().filter(|answer| matches!(answer.status, 401 | 403)) {
        return Err(Stop::inconclusive(format!("the refreshed credential is refused: {answer}")));
    }
    let is_refused = |answer: &&Answer| answer.is_refusal() && !answer.is_held() && !answer.is_not_now();
    if let Some(answer) = refreshed.answer().filter(is_refused) {
        let why = format!("a retry with a refreshed credential got {answer}");
        return Err(Stop::violated(FaultKind::LostAnswer, why));
    }
    let again = context.request(&key).called("first credential");
    let mut shots = vec![first, refreshed];
    let again = settled(context, before, &shots, again, answer.as_ref()).await?;
    shots.push(again);
    once(context, before, &shots).await?;
    Ok(format!("a retry with another {name} got the first answer, and had no effect"))
}
