//! A request outlives the lease, and somebody else comes for its key.

use std::time::Duration;

use super::super::message::Request;
use super::super::once::once;
use super::super::setup::Setup;
use super::super::stage::{Stage, TRIES_MAX};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "slow-owner",
    promise: "A request that runs for longer than the lease still has one effect and one answer.",
    lacks: |setup| {
        setup.check.slow_header.is_none().then_some("give a field that makes it slow with --slow-header")
    },
    plan,
    run: |stage| Box::pin(run(stage)),
};

const ROUNDS: u64 = 2;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        ROUNDS * (2 + TRIES_MAX),
        format!("{ROUNDS} times: a slow request, and another of the same key after the lease"),
    )
}

async fn run(stage: &mut Stage<'_>) -> Result<String, Stop> {
    let mut took = Duration::ZERO;
    for _ in 0..ROUNDS {
        took = outlive(stage).await?;
    }
    Ok(format!(
        "a request of {took:.1?} under a lease of {:?}: one effect and one answer",
        stage.setup.check.lease
    ))
}

/// A slow one; when its lease would be over, another. Says how long the slow one took.
async fn outlive(stage: &mut Stage<'_>) -> Result<Duration, Stop> {
    stage.round();
    let before = stage.effects().await?;
    let slow = slow(stage);
    let late = late(stage);
    let aimed = vec![
        Aimed::from(slow.clone().called("slow")),
        Aimed { after: late, ..slow.clone().called("after the lease").into() },
    ];
    let mut shots = stage.fire(aimed).await?;
    let took = shots[0].ended - shots[0].sent;
    if shots[1].sent > shots[0].ended {
        return Err(Stop::inconclusive(format!(
            "the slow request took only {took:.1?}, which is not longer than the lease"
        )));
    }
    shots.push(stage.settle(slow.called("afterwards")).await?);
    once(stage, before, &shots).await?;
    Ok(took)
}

fn slow(stage: &mut Stage<'_>) -> Request {
    let (name, value) = stage.setup.check.slow_header.clone().expect("it is not lacking");
    let key = stage.key();
    stage.request(&key).replace(&name, value.as_str())
}

/// When the lease is surely over.
fn late(stage: &mut Stage<'_>) -> Duration {
    let lease = stage.setup.check.lease;
    lease + lease / 10 + stage.moment(lease / 10)
}
