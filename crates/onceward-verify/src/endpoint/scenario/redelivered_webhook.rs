//! A provider delivers an event again: later, and while the first delivery is still running.

use std::time::{Duration, Instant, SystemTime};

use super::super::fault::FaultKind;
use super::super::message::Request;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redelivered-webhook",
    promise: "An event that is delivered several times has one effect, also where each delivery has a new signature.",
    by_key: false,
    lacks: |setup| setup.webhook.is_none().then_some("give an endpoint for signed events with --webhook-url"),
    plan,
    run: |context| Box::pin(run(context)),
};

const EVENTS: u64 = 3;
const TOGETHER: u64 = 4;

/// How often effects are asked for while a slow event may still be worked on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The last one with slow deliveries: one that waits for the first may lose patience.
fn events(setup: &Setup) -> u64 {
    EVENTS + setup.slow_rounds() as u64
}

fn plan(setup: &Setup) -> Plan {
    let signs_time = setup.check.webhook.as_ref().is_some_and(|webhook| webhook.scheme.signs_time());
    let again = if signs_time { "with a later signature" } else { "with the same signature" };
    let events = events(setup);
    Plan::new(
        // One slow request to find out how long one takes.
        setup.slow_rounds() as u64 + events * (TOGETHER + TRIES_MAX),
        format!("{events} events: {TOGETHER} deliveries together, and one more {again}"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let events = events(context.setup);
    for event in 0..events {
        let takes = if event < EVENTS { None } else { Some(context.slow_took().await?) };
        context.round();
        one_event(context, takes).await?;
    }
    Ok(format!("{events} events, each delivered {} times: one effect each", TOGETHER + 1))
}

/// Delivers one event several times; slow ones, if they take this long.
async fn one_event(context: &mut ScenarioContext<'_>, takes: Option<Duration>) -> Result<(), Stop> {
    let before = context.effects().await?;
    let id = format!("evt_{}", context.key());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let delivery = |context: &ScenarioContext<'_>, unix_s: u64| {
        let delivery = delivery(context, &id, unix_s)?;
        Ok::<Request, Stop>(if takes.is_some() { context.slow(delivery) } else { delivery })
    };
    let deliveries = (0..TOGETHER).map(|_| delivery(context, now)).collect::<Result<Vec<_>, Stop>>()?;
    let sent = Instant::now();
    let shots = context.volley(deliveries).await?;
    let is_taken = shots.iter().any(|shot| shot.success().is_some());
    if !is_taken {
        let why = format!("a signed event is not taken: {}", shots[0].ending);
        return Err(Stop::inconclusive(why));
    }
    // An event may be answered when it is stored, and be worked on later.
    while takes.is_some_and(|takes| sent.elapsed() < takes) && context.effects().await? == before {
        tokio::time::sleep(ASK_EVERY).await;
    }
    let together = context.runs(before, 1).await?;
    let late = delivery(context, now + 1)?.called("delivered again");
    let late = context.retry_until_answered(late).await?;
    let Some(runs) = context.runs(before, 1).await? else {
        return Err(Stop::inconclusive("effects must be counted: deliveries have no answers to compare"));
    };
    if runs > 1 {
        context.trace.is_wrong(if together > Some(1) { "delivery" } else { "delivered again" });
        let deliveries = TOGETHER + 1;
        // Not a race of keys: an event is known by its id.
        return Err(Stop::violated(
            FaultKind::DoubleEffect,
            format!("{deliveries} deliveries of one event had {}", effects(runs)),
        ));
    }
    if runs == 0 {
        return Err(Stop::violated(FaultKind::LostAnswer, "an event was accepted, and no effect happened"));
    }
    if late.success().is_none() {
        let why = format!(
            "a delivery of an event that is done got {}: the provider delivers it forever",
            late.ending
        );
        return Err(Stop::violated(FaultKind::WrongAnswer, why));
    }
    Ok(())
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
