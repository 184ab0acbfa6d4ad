//! A request takes longer than its lease, and a duplicate arrives.

use std::time::Duration;

use super::super::message::Request;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::retried_once;
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "slow-owner",
    promise: "A request that runs for longer than the lease still has one effect and one answer.",
    by_key: true,
    lacks: |setup| {
        setup.check.slow_header.is_none().then_some("give a field that makes it slow with --slow-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

const ROUNDS: u64 = 2;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        ROUNDS * (2 + TRIES_MAX),
        format!("{ROUNDS} times: a slow request, and another of the same key after the lease"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let mut took = Duration::ZERO;
    for _ in 0..ROUNDS {
        took = outlive(context).await?;
    }
    Ok(format!(
        "a request of {took:.1?} under a lease of {:?}: one effect and one answer",
        context.setup.check.lease
    ))
}

/// A slow one; when its lease would be over, another. Says how long the slow one took.
async fn outlive(context: &mut ScenarioContext<'_>) -> Result<Duration, Stop> {
    context.round();
    let before = context.effects().await?;
    let slow = slow(context);
    let late = late(context);
    let aimed = vec![
        Aimed::from(slow.clone().called("slow")),
        Aimed { after: late, ..slow.clone().called("after the lease").into() },
    ];
    let shots = context.fire(aimed).await?;
    let took = shots[0].ended - shots[0].sent;
    if shots[1].sent > shots[0].ended {
        return Err(Stop::inconclusive(format!(
            "the slow request took only {took:.1?}, which is not longer than the lease"
        )));
    }
    retried_once(context, before, shots, vec![slow.called("afterwards")]).await?;
    Ok(took)
}

fn slow(context: &mut ScenarioContext<'_>) -> Request {
    let (name, value) = context.setup.check.slow_header.clone().expect("it is not lacking");
    let key = context.key();
    context.request(&key).replace(&name, value.as_str())
}

/// When the lease is surely over.
fn late(context: &mut ScenarioContext<'_>) -> Duration {
    let lease = context.setup.check.lease;
    lease + lease / 10 + context.moment(lease / 10)
}
