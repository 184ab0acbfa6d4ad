//! Two tenants happen to use the same key.

use super::super::setup::Setup;
use super::super::stage::Stage;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-tenant",
    promise: "A key belongs to its tenant: another's use of it is neither answered with it nor refused for it.",
    lacks: |setup| {
        setup.check.tenants.is_none().then_some("give the fields of two tenants with --tenant-header")
    },
    plan,
    run: |stage| Box::pin(run(stage)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(3u64, "one request of the second tenant; then both tenants with the same key")
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let [_, (name, value)] = stage.setup.check.tenants.clone().expect("they are not lacking");
    let key = stage.key();
    let alone = stage
        .send(stage.request(&key).replace(&name, value.as_str()).called("other tenant, own key"))
        .await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the second tenant may not do this at all: {}",
            alone.ending
        )));
    }
    stage.round();
    let before = stage.effects().await?;
    let key = stage.key();
    let first = stage.send(stage.request(&key).called("one tenant")).await?;
    let other = stage.send(stage.request(&key).replace(&name, value.as_str()).called("other tenant")).await?;
    let (Some(first), Some(second)) = (first.success(), other.success()) else {
        return Err(Stop::violated(format!(
            "the other tenant was refused a key that is new to it: {}",
            other.ending
        )));
    };
    let is_leak = stage.baseline().tells_apart && first.body == second.body;
    match stage.runs(before, 2).await? {
        _ if is_leak => Err(Stop::violated("one tenant got the other's answer")),
        Some(runs) if runs != 2 => {
            Err(Stop::violated(format!("two tenants with the same key had {runs} effects instead of 2")))
        }
        None if !stage.baseline().tells_apart => {
            Err(Stop::inconclusive("nobody counts effects, and all answers look the same"))
        }
        _ => Ok("both ran, and each got its own answer".to_owned()),
    }
}
