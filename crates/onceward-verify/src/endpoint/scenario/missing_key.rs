//! A request without a key.

use super::super::setup::Setup;
use super::super::stage::Stage;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "missing-key",
    promise: "Requests without a key are refused, or each of them runs: they are never taken for one another.",
    lacks: nothing,
    plan,
    run: |stage| Box::pin(run(stage)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(2u64, "two requests without a key")
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let before = stage.effects().await?;
    let request = stage.setup.request().called("without a key");
    let shots = [stage.send(request.clone()).await?, stage.send(request).await?];
    let [Some(one), Some(other)] = shots.each_ref().map(|shot| shot.answer()) else {
        return Err(Stop::violated(format!("a request without a key got {}", shots[1].ending)));
    };
    if let Some(failure) = [one, other].into_iter().find(|answer| answer.status >= 500) {
        return Err(Stop::violated(format!("a request without a key got {failure}")));
    }
    let expected = [one, other].iter().filter(|answer| answer.is_success()).count();
    let runs = stage.runs(before, i64::try_from(expected).unwrap_or_default()).await?;
    if expected == 2
        && (runs.is_some_and(|runs| runs < 2) || (stage.baseline().tells_apart && one.body == other.body))
    {
        return Err(Stop::violated(
            "two requests without a key were taken for one: one of them was never done",
        ));
    }
    if expected == 0 && runs.is_some_and(|runs| runs > 0) {
        return Err(Stop::violated(format!(
            "a request without a key was refused with {}, and ran all the same",
            one.status
        )));
    }
    if expected > 0 {
        stage.note("the key is optional: a request without one is not protected");
        return Ok("each of them runs".to_owned());
    }
    Ok(format!("refused with {}", one.status))
}
