//! Another tenant uses a key first, with a request of its own.

use super::super::fault::{Cause, FaultKind};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "key-squatting",
    promise: "Nobody can take a key from another tenant by using it first: the owner's request runs all the same.",
    by_key: true,
    lacks: |setup| {
        if setup.check.tenants.is_empty() {
            return Some("give the fields of two tenants with --tenant-header");
        }
        setup.alt_body.is_none().then_some("give another valid body with --alt-body")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS: usize = 2;

fn plan(setup: &Setup) -> Plan {
    let pairs = setup.check.tenants.len();
    let rounds = ROUNDS + setup.slow_rounds();
    Plan::new(
        (pairs * rounds) as u64 * (2 + TRIES_MAX),
        "another tenant sends a key with another body, just before the owner and while it runs",
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let other_body = context.setup.alt_body.clone().expect("it is not lacking");
    for [_, (name, value)] in context.setup.check.tenants.clone() {
        // First one after the other; then together; then together and slow.
        for round in 0..ROUNDS + context.setup.slow_rounds() {
            context.round();
            let before = context.effects().await?;
            let key = context.key();
            let plain = context.request(&key);
            let plain = if round == ROUNDS { context.slow(plain) } else { plain };
            let squat = context.with_body(plain.clone(), &other_body).replace(&name, value.as_str());
            let own = plain.called("owner");
            let shots = if round == 0 {
                let squat = context.send(squat.called("squatter")).await?;
                vec![squat, context.send(own.clone()).await?]
            } else {
                context.volley(vec![squat.called("squatter"), own.clone()]).await?
            };
            let mut shots = shots;
            if shots[1].is_not_now() {
                shots[1] = context.retry_until_answered(own).await?;
            }
            let [squat, own] = &shots[..] else { unreachable!("two were sent") };
            if squat.success().is_none() && round == 0 {
                return Err(Stop::NotApplicable(format!(
                    "the second tenant may not do this at all: {}",
                    squat.ending
                )));
            }
            let Some(answer) = own.success() else {
                let why = format!(
                    "the owner's request was refused, because another, by {name}, used its key first: {}",
                    own.ending
                );
                return Err(Stop::violated(FaultKind::WrongAnswer, why).or_from(Cause::Tenant));
            };
            if context.baseline().tells_apart
                && squat.success().is_some_and(|squat| squat.body == answer.body)
            {
                context.trace.is_wrong("owner");
                let why = format!("the owner got the answer of another, by {name}, who used its key first");
                return Err(Stop::violated(FaultKind::WrongAnswer, why).or_from(Cause::Tenant));
            }
            if !context.baseline().tells_apart && !context.setup.oracle.sees() {
                return Err(Stop::inconclusive("effects are not counted, and all answers look the same"));
            }
            let expected = 1 + i64::from(squat.success().is_some());
            if let Some(runs) = context.runs(before, expected).await?.filter(|runs| *runs < expected) {
                let why = format!(
                    "the owner's request was answered as done, and {runs} of {expected} effects happened"
                );
                return Err(Stop::violated(FaultKind::LostAnswer, why).or_from(Cause::Tenant));
            }
        }
    }
    Ok("a key that another tenant used first is free for its owner".to_owned())
}
