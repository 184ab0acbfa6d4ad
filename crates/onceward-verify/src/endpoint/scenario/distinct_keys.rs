//! Two keys that are nearly the same.

use super::super::check::KeyNotation;
use super::super::fault::FaultKind;
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "distinct-keys",
    promise: "Two keys that differ in anything are two keys.",
    by_key: true,
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

/// Two keys made from one, the odder of them first: where that is refused there is nothing to mix up.
struct Pair {
    name: &'static str,
    /// Whether white space can be told from the field's own only within quotes.
    quoted_only: bool,
    keys: fn(&str) -> [String; 2],
}

const PAIRS: [Pair; 4] = [
    Pair {
        name: "in the case of a letter",
        quoted_only: false,
        keys: |key| [format!("{key}-A"), format!("{key}-a")],
    },
    Pair {
        name: "after 120 characters",
        quoted_only: false,
        keys: |key| {
            let long = format!("{key}{}", "k".repeat(120 - key.len()));
            [format!("{long}-1"), format!("{long}-2")]
        },
    },
    Pair {
        name: "in a space at the end",
        quoted_only: true,
        keys: |key| [format!("{key}-s "), format!("{key}-s")],
    },
    Pair { name: "in a dash", quoted_only: false, keys: |key| [format!("{key}-1-2"), format!("{key}-12")] },
];

fn plan(_: &Setup) -> Plan {
    Plan::new(
        (1 + TRIES_MAX) * PAIRS.len() as u64,
        format!("{} pairs of keys that are nearly the same", PAIRS.len()),
    )
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let mut told = 0;
    for pair in &PAIRS {
        if pair.quoted_only && context.key_notation == KeyNotation::Raw {
            continue;
        }
        context.round();
        let before = context.effects().await?;
        let key = context.key();
        let [one, other] = (pair.keys)(&key);
        let first = context.send(context.request(&one).called("one key")).await?;
        let Some(first) = first.success() else { continue };
        let second = context.retry_until_answered(context.request(&other).called("another key")).await?;
        let Some(answer) = second.success() else {
            if second.answer().is_some_and(|answer| answer.status == 400) {
                continue;
            }
            let why =
                format!("keys that differ {} are taken for one: the second got {}", pair.name, second.ending);
            return Err(Stop::violated(FaultKind::WrongAnswer, why));
        };
        let taken_for_one = match context.runs(before, 2).await? {
            Some(runs) => runs < 2,
            None if !context.baseline().tells_apart => {
                return Err(Stop::inconclusive("effects are not counted, and all answers look the same"));
            }
            None => first.body == answer.body,
        };
        if taken_for_one {
            context.trace.is_wrong("another key");
            let why = format!("keys that differ {} are taken for one: the second was never done", pair.name);
            return Err(Stop::violated(FaultKind::LostAnswer, why));
        }
        told += 1;
    }
    if told == 0 {
        return Err(Stop::NotApplicable("the endpoint takes none of these keys".to_owned()));
    }
    Ok(format!("{told} pairs of nearly the same keys are told apart"))
}
