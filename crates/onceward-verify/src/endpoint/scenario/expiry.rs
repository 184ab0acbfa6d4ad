//! A retry before the retention ends, and one after.

use std::time::{Duration, Instant};

use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::super::single_effect::once;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "expiry",
    promise: "An answer is kept for as long as promised; after that a retry runs again or is refused.",
    lacks: |setup| setup.check.retention.is_none().then_some("say what is promised with --retention"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(setup: &Setup) -> Plan {
    let retention = setup.check.retention.unwrap_or_default();
    Plan::new(
        2 + TOGETHER,
        format!("a request, a retry late within {retention:?}, {TOGETHER} retries together after it"),
    )
}

/// Retries that are sent together when the retention is over: a key that expires is a key that many may claim at once.
const TOGETHER: u64 = 16;

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let retention = context.setup.check.retention.expect("it is not lacking");
    let before = context.effects().await?;
    let key = context.key();
    let start = Instant::now();
    let first = context.send(context.request(&key).called("first")).await?;
    tokio::time::sleep((retention * 7 / 10).saturating_sub(start.elapsed())).await;
    let within = context.send(context.request(&key).called("within the retention")).await?;
    if start.elapsed() >= retention {
        return Err(Stop::inconclusive("this machine is too busy to send within the retention"));
    }
    once(context, before, &[first.clone(), within]).await?;
    let over = retention + retention / 5 + Duration::from_millis(200);
    tokio::time::sleep(over.saturating_sub(start.elapsed())).await;
    let requests = (0..TOGETHER).map(|_| context.request(&key).called("after the retention")).collect();
    let shots = context.volley(requests).await?;
    let runs = context.runs(before, 1).await?;
    if let Some(again) = runs.map(|runs| runs - 1).filter(|again| *again > 1) {
        return Err(Stop::violated(format!(
            "{TOGETHER} retries together after the retention had {again} effects"
        )));
    }
    // The answer of one that got through, or else what they were told.
    let after = shots.iter().find(|shot| shot.success().is_some()).unwrap_or(&shots[0]);
    match (first.success(), after.answer()) {
        (Some(first), Some(after)) if after.is_success() => {
            let is_replay = runs.map_or(first.body == after.body, |runs| runs == 1);
            if is_replay {
                context.note("the answer is kept for longer than promised");
                return Ok("kept as promised, and longer".to_owned());
            }
            Ok("kept as promised; after that it runs again".to_owned())
        }
        (_, Some(after)) if after.is_refusal() && !after.is_not_now() => {
            Ok(format!("kept as promised; after that it is refused with {}", after.status))
        }
        _ => Err(Stop::violated(format!("after the retention the key got {}", after.ending))),
    }
}
