//! A request without a key.

use super::super::fault::FaultKind;
use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "missing-key",
    promise: "Requests without a key are refused, or each of them runs: they are never taken for one another.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(2u64, "two requests without a key")
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let before = context.effects().await?;
    let request = context.plain().called("without a key");
    let shots = [context.send(request.clone()).await?, context.send(request).await?];
    let [Some(one), Some(other)] = shots.each_ref().map(|shot| shot.answer()) else {
        let why = format!("a request without a key got {}", shots[1].ending);
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    };
    if let Some(failure) = [one, other].into_iter().find(|answer| answer.is_failure()) {
        let why = format!("a request without a key got {failure}");
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    }
    let expected = [one, other].iter().filter(|answer| answer.is_success()).count();
    let runs = context.runs(before, i64::try_from(expected).unwrap_or_default()).await?;
    if expected == 2
        && (runs.is_some_and(|runs| runs < 2) || (context.baseline().tells_apart && one.body == other.body))
    {
        context.trace.is_wrong("without a key");
        return Err(Stop::violated(
            FaultKind::LostAnswer,
            "two requests without a key were taken for one: one of them was never done",
        ));
    }
    if expected == 0 && runs.is_some_and(|runs| runs > 0) {
        let why = format!("a request without a key was refused with {}, and ran all the same", one.status);
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    }
    if expected > 0 {
        context.note("the key is optional: a request without one is not protected");
        return Ok("each of them runs".to_owned());
    }
    Ok(format!("refused with {}", one.status))
}
