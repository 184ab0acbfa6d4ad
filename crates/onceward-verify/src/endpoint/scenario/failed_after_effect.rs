//! The effect happens, and then the answer is a failure: a timeout layer, a lost database connection, an overloaded hop.

use super::super::message::Answer;
use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failed-after-effect",
    promise: "A failure after the effect does not free the key: no retry has a second effect.",
    lacks: |setup| {
        setup
            .check
            .fail_after_effect_header
            .is_none()
            .then_some("give a field that makes it fail after its effect with --fail-after-effect-header")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

/// Statuses that a service or a hop answers with after the work began.
const STATUSES: [u16; 5] = [408, 500, 502, 503, 504];
/// Retries of a client that got one of them.
const RETRIES: u64 = 3;

fn statuses(setup: &Setup) -> &'static [u16] {
    let value = setup.check.fail_after_effect_header.as_ref().map(|(_, value)| value.as_str());
    // Without a place for it, the endpoint chooses the status.
    if value.is_some_and(|value| value.contains(PLACEHOLDER)) { &STATUSES } else { &STATUSES[..1] }
}

/// What stands for the status in the value of the field.
const PLACEHOLDER: &str = "{status}";

fn plan(setup: &Setup) -> Plan {
    let count = statuses(setup).len() as u64;
    Plan::new(
        count * (1 + RETRIES),
        format!("{count} times: a request that fails after its effect, and {RETRIES} retries"),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (name, value) = context.setup.check.fail_after_effect_header.clone().expect("it is not lacking");
    let statuses = statuses(context.setup);
    let mut held = 0;
    for status in statuses {
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let value = value.replace(PLACEHOLDER, &status.to_string());
        let request = context.request(&key).replace(&name, value.as_str());
        let first = context.send(request.clone().called("fails after its effect")).await?;
        let failed = first.answer().is_none_or(|answer| !answer.is_success());
        if !failed {
            return Err(Stop::inconclusive(format!(
                "--fail-after-effect-header did not make it fail: {}",
                first.ending
            )));
        }
        if context.runs(before, 1).await?.is_some_and(|runs| runs == 0) {
            return Err(Stop::inconclusive("--fail-after-effect-header made it fail without an effect"));
        }
        let mut last = first.clone();
        for _ in 0..RETRIES {
            last = context.send(request.clone().called("retry")).await?;
        }
        if let Some(runs) = context.runs(before, 1).await?.filter(|runs| *runs > 1) {
            return Err(Stop::violated(format!(
                "after its effect it was answered with {}, and the retries ran it again: {runs} effects",
                first.ending
            )));
        }
        held += usize::from(last.answer().is_some_and(Answer::is_held));
    }
    let count = statuses.len();
    if held > 0 {
        return Err(Stop::Held(format!(
            "{count} failures after the effect, one effect each; {held} of {count} keys are held as unknown until a \
             person settles them"
        )));
    }
    Ok(format!("{count} failures after the effect, one effect each"))
}
