//! A retry before the retention ends, and one after.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::fault::{Cause, FaultKind};
use super::super::message::{Answer, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{once, settled};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "expiry",
    promise: "An answer is kept for as long as promised; after that a retry runs again or is refused.",
    by_key: true,
    lacks: |setup| setup.check.retention.is_none().then_some("say what is promised with --retention"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(setup: &Setup) -> Plan {
    let retention = setup.check.retention.unwrap_or_default();
    Plan::new(
        1 + 2 * TRIES_MAX + TOGETHER,
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
    let within = context.request(&key).called("within the retention");
    let within = settled(context, before, std::slice::from_ref(&first), within, first.success()).await;
    let within = within.map_err(|stop| stop.or_from(Cause::Forgotten))?;
    if start.elapsed() >= retention {
        return Err(Stop::inconclusive("this machine is too busy to send within the retention"));
    }
    once(context, before, &[first.clone(), within]).await.map_err(|stop| stop.or_from(Cause::Forgotten))?;
    let over = retention + retention / 5 + Duration::from_millis(200);
    tokio::time::sleep(over.saturating_sub(start.elapsed())).await;
    let requests = (0..TOGETHER).map(|_| context.request(&key).called("after the retention")).collect();
    let shots = context.volley(requests).await?;
    let runs = context.runs(before, 1).await?;
    if let Some(again) = runs.map(|runs| runs - 1).filter(|again| *again > 1) {
        let why = format!("{TOGETHER} retries together after the retention had {again} effects");
        return Err(Stop::violated(FaultKind::DoubleEffect, why).or_from(Cause::Race));
    }
    let can_tell = context.setup.oracle.sees() || context.baseline().tells_apart;
    let bodies: HashSet<&Bytes> = shots.iter().filter_map(Shot::success).map(|answer| &answer.body).collect();
    if runs.is_none() && context.baseline().tells_apart && bodies.len() > 1 {
        let count = bodies.len();
        let why = format!("{TOGETHER} retries together after the retention got {count} different answers");
        return Err(Stop::violated(FaultKind::DoubleEffect, why).or_from(Cause::Race));
    }
    // The answer of one that got through, or else what they are told in the end.
    let after = match shots.iter().find(|shot| shot.success().is_some()) {
        Some(done) => done.clone(),
        None => context.retry_until_answered(context.request(&key).called("after the retention")).await?,
    };
    match (first.success(), after.answer()) {
        (Some(first), Some(after)) if after.is_success() => {
            if !can_tell {
                return Err(Stop::inconclusive("effects are not counted, and all answers look the same"));
            }
            if runs.map_or(first.body == after.body, |runs| runs == 1) {
                context.note("the answer is kept for longer than promised");
                return Ok("kept as promised, and longer".to_owned());
            }
            Ok("kept as promised; after that it runs again".to_owned())
        }
        (_, Some(after)) if after.is_held() => {
            context.held += 1;
            Ok("kept as promised".to_owned())
        }
        (_, Some(after)) if is_refused(after) => {
            if after.is_not_now() {
                context
                    .note(format!("to most clients {} says that the first is still running", after.status));
            }
            Ok(format!("kept as promised; after that it is refused with {}", after.status))
        }
        _ => Err(Stop::violated(
            FaultKind::Wedged,
            format!("after the retention the key got {}", after.ending),
        )
        .or_from(Cause::Stuck)),
    }
}

/// Whether a key past its retention is refused for good. A 409 that stays and does not say when to come again is a refusal,
/// too.
fn is_refused(answer: &Answer) -> bool {
    answer.is_refusal() && !answer.is_not_now()
        || answer.status == 409 && answer.is_not_now() && answer.field("retry-after").is_none()
}
