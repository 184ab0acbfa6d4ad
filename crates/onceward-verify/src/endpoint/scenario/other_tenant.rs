//! Two tenants use the same key: they differ in a credential, a cookie or the host that they ask.

use super::super::fault::{Cause, FaultKind};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "other-tenant",
    promise: "A key belongs to its tenant: another's use of it is neither answered with it nor refused for it.",
    by_key: true,
    lacks: |setup| {
        setup.check.tenants.is_empty().then_some("give the fields of two tenants with --tenant-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(setup: &Setup) -> Plan {
    let pairs = setup.check.tenants.len() as u64;
    Plan::new(
        (2 + TRIES_MAX) * pairs,
        "one request of the second tenant; then both tenants with the same key",
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let tenants = context.setup.check.tenants.clone();
    for [_, (name, value)] in &tenants {
        context.round();
        two_tenants(context, name, value).await?;
    }
    let names: Vec<&str> = tenants.iter().map(|[_, (name, _)]| name.as_str()).collect();
    Ok(format!("told apart by {}: both ran, and each got its own answer", names.join(", ")))
}

async fn two_tenants(context: &mut ScenarioContext<'_>, name: &str, value: &str) -> Result<(), Stop> {
    let key = context.key();
    let alone =
        context.send(context.request(&key).replace(name, value).called("other tenant, own key")).await?;
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
    let other = context.request(&key).replace(name, value).called("other tenant");
    let other = context.retry_until_answered(other).await?;
    let (Some(first), Some(second)) = (first.success(), other.success()) else {
        let why =
            format!("the other tenant, by {name}, was refused a key that is new to it: {}", other.ending);
        return Err(Stop::violated(FaultKind::WrongAnswer, why).or_from(Cause::Tenant));
    };
    if context.baseline().tells_apart && first.body == second.body {
        context.trace.is_wrong("other tenant");
        let why = format!("one tenant got the other's answer: {name} does not tell them apart");
        return Err(Stop::violated(FaultKind::WrongAnswer, why).or_from(Cause::Tenant));
    }
    match context.runs(before, 2).await? {
        Some(runs) if runs != 2 => {
            let kind = if runs > 2 { FaultKind::DoubleEffect } else { FaultKind::LostAnswer };
            let why = format!("two tenants, by {name}, had {} under one key instead of 2", effects(runs));
            Err(Stop::violated(kind, why).or_from(Cause::Tenant))
        }
        None if !context.baseline().tells_apart => {
            Err(Stop::inconclusive("effects are not counted, and all answers look the same"))
        }
        _ => Ok(()),
    }
}
