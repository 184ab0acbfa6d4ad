//! A provider delivers an event again: with a new signature, and while the first delivery is still running.

use std::time::SystemTime;

use super::super::fault::{Cause, FaultKind};
use super::super::message::Request;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redelivered-webhook",
    promise: "An event that is delivered several times, each time with a new signature, has one effect.",
    lacks: |setup| setup.webhook.is_none().then_some("give an endpoint for signed events with --webhook-url"),
    plan,
    run: |context| Box::pin(run(context)),
};

const EVENTS: u64 = 3;
const TOGETHER: u64 = 4;

fn plan(_: &Setup) -> Plan {
    Plan::new(
        EVENTS * (TOGETHER + TRIES_MAX),
        format!("{EVENTS} events: {TOGETHER} deliveries together, and one more with a later signature"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    for _ in 0..EVENTS {
        context.round();
        let before = context.effects().await?;
        let id = format!("evt_{}", context.key());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let deliveries =
            (0..TOGETHER).map(|_| delivery(context, &id, now)).collect::<Result<Vec<_>, Stop>>()?;
        let shots = context.volley(deliveries).await?;
        let is_taken = shots.iter().any(|shot| shot.success().is_some());
        if !is_taken {
            let why = format!("a signed event is not taken: {}", shots[0].ending);
            return Err(Stop::inconclusive(why));
        }
        let together = context.runs(before, 1).await?;
        let late = delivery(context, &id, now + 1)?.called("delivered again");
        let late = context.retry_until_answered(late).await?;
        let Some(runs) = context.runs(before, 1).await? else {
            return Err(Stop::inconclusive("effects must be counted: deliveries have no answers to compare"));
        };
        if runs > 1 {
            context.trace.is_wrong(if together > Some(1) { "delivery" } else { "delivered again" });
            let deliveries = TOGETHER + 1;
            let stop = Stop::violated(
                FaultKind::DoubleEffect,
                format!("{deliveries} deliveries of one event had {}", effects(runs)),
            );
            return Err(if together > Some(1) { stop.or_from(Cause::Race) } else { stop });
        }
        if runs == 0 {
            return Err(Stop::violated(
                FaultKind::LostAnswer,
                "an event was accepted, and no effect happened",
            ));
        }
        if late.success().is_none() {
            let why = format!(
                "a delivery of an event that is done got {}: the provider delivers it forever",
                late.ending
            );
            return Err(Stop::violated(FaultKind::WrongAnswer, why));
        }
    }
    Ok(format!("{EVENTS} events, each delivered {} times: one effect each", TOGETHER + 1))
}

fn delivery(context: &ScenarioContext<'_>, id: &str, unix_s: u64) -> Result<Request, Stop> {
    let webhook = context.setup.check.webhook.as_ref().expect("it is not lacking");
    let place = context.setup.webhook.as_ref().expect("it is not lacking");
    let event = webhook.event(id).map_err(|error| Stop::Inconclusive(error.to_string()))?;
    let fields = webhook.fields(id, &event, unix_s);
    let mut request = context.plain().to(place).body(event).replace("Content-Type", "application/json");
    request.method = String::from("POST");
    Ok(fields
        .iter()
        .fold(request, |request, (name, value)| request.replace(name, value.as_str()))
        .called("delivery"))
}
