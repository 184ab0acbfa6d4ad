//! Two tenants use the same key.

use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-tenant",
    promise: "A key belongs to its tenant: another's use of it is neither answered with it nor refused for it.",
    lacks: |setup| {
        setup.check.tenants.is_none().then_some("give the fields of two tenants with --tenant-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(_: &Setup) -> Plan {
    Plan::new(3u64, "one request of the second tenant; then both tenants with the same key")
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let [_, (name, value)] = context.setup.check.tenants.clone().expect("they are not lacking");
    let key = context.key();
    let alone = context
        .send(context.request(&key).replace(&name, value.as_str()).called("other tenant, own key"))
        .await?;
    if alone.success().is_none() {
        return Err(Stop::NotApplicable(format!(
            "the second tenant may not do this at all: {}",
            alone.ending
        )));
    }
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let first = context.send(context.request(&key).called("one tenant")).await?;
    let other =
        context.send(context.request(&key).replace(&name, value.as_str()).called("other tenant")).await?;
    let (Some(first), Some(second)) = (first.success(), other.success()) else {
        return Err(Stop::violated(format!(
            "the other tenant was refused a key that is new to it: {}",
            other.ending
        )));
    };
    let is_leak = context.baseline().tells_apart && first.body == second.body;
    match context.runs(before, 2).await? {
        _ if is_leak => Err(Stop::violated("one tenant got the other's answer")),
        Some(runs) if runs != 2 => {
            Err(Stop::violated(format!("two tenants with the same key had {runs} effects instead of 2")))
        }
        None if !context.baseline().tells_apart => {
            Err(Stop::inconclusive("nobody counts effects, and all answers look the same"))
        }
        _ => Ok("both ran, and each got its own answer".to_owned()),
    }
}
