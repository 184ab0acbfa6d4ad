//! The answer arrived, and the client sends again all the same.

use super::super::once::once;
use super::super::setup::Setup;
use super::super::stage::Stage;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "retry-after-success",
    promise: "A retry of what is done gets the same status, fields and body, and has no effect.",
    lacks: nothing,
    plan,
    run: |stage| Box::pin(run(stage)),
};

const KEYS: usize = 3;
const RETRIES: usize = 2;

fn plan(_: &Setup) -> Plan {
    Plan::new(KEYS * (1 + RETRIES), format!("{KEYS} keys, each sent once and then {RETRIES} times more"))
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    for _ in 0..KEYS {
        stage.round();
        let before = stage.effects().await?;
        let key = stage.key();
        let mut shots = vec![stage.send(stage.request(&key).called("first")).await?];
        for _ in 0..RETRIES {
            let shot = stage.send(stage.request(&key).called("retry")).await?;
            if shot.is_not_now() {
                return Err(Stop::violated(format!(
                    "a retry after the answer had arrived got {}",
                    shot.ending
                )));
            }
            shots.push(shot);
        }
        once(stage, before, &shots).await?;
    }
    Ok(format!("{} retries got the same status, fields and body, and had no effect", KEYS * RETRIES))
}
