//! Duplicates arrive all along a request that runs for long: some servers let those who wait run when they lose patience.

use std::time::Duration;

use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::super::single_effect::{retried_once, told_to_wait};
use super::super::volley::Aimed;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "long-running-duplicates",
    promise: "Duplicates of a request that runs for long wait or are told to come again, however long that takes.",
    by_key: true,
    lacks: |setup| {
        setup.check.slow_header.is_none().then_some("give a field that makes it slow with --slow-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

/// No more wait at a time: each keeps a connection.
const WAITING_MAX: usize = 32;

fn plan(setup: &Setup) -> Plan {
    let clients = setup.check.clients.min(WAITING_MAX) as u64;
    Plan::new(
        2 * (clients + TRIES_MAX),
        format!("twice: a slow request, and {clients} duplicates while it runs"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (name, value) = context.setup.check.slow_header.clone().expect("it is not lacking");
    let clients = context.setup.check.clients.min(WAITING_MAX);
    let mut took = Duration::ZERO;
    let mut not_now = Vec::new();
    // First all at once; then strewn over the time that the first one took.
    for _ in 0..2 {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let request = context.request(&key).replace(&name, value.as_str());
        let mut aimed = vec![Aimed::from(request.clone().called("slow"))];
        for _ in 1..clients {
            let after = context.moment(took);
            aimed.push(Aimed { after, ..request.clone().called("duplicate").into() });
        }
        let shots = context.fire(aimed).await?;
        took = took.max(shots[0].ended - shots[0].sent);
        not_now.extend(shots.iter().filter(|shot| shot.is_not_now()).cloned());
        retried_once(context, before, shots, vec![request.called("retry")]).await?;
    }
    let how = told_to_wait(&not_now).unwrap_or_else(|| "all waited".to_owned());
    Ok(format!("{clients} duplicates of a request of {took:.1?}: one effect and one answer; {how}"))
}
