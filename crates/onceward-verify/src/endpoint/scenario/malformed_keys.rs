//! Requests whose keys are malformed.

use super::super::message::Request;
use super::super::scenario_context::ScenarioContext;
use super::super::setup::Setup;
use super::{Plan, Scenario, Stop, nothing};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "malformed-keys",
    promise: "A key that is accepted is honoured, however odd; one that is not is refused, not ignored.",
    lacks: nothing,
    plan,
    run: |context| Box::pin(run(context)),
};

/// Longer than any column that keys are kept in, shorter than what a server takes for a header.
const LONG_CHARS: usize = 3_000;

fn plan(_: &Setup) -> Plan {
    Plan::new(2 * ODD.len(), format!("{} odd keys, twice each", ODD.len()))
}

struct Odd {
    name: &'static str,
    /// Whether it amounts to no key at all.
    is_empty: bool,
    /// The values of the field, one for each line.
    lines: fn(&Setup, &str) -> Vec<Vec<u8>>,
}

const ODD: [Odd; 6] = [
    Odd { name: "an empty key", is_empty: true, lines: |setup, _| vec![setup.written("")] },
    Odd {
        name: "two keys in two lines",
        is_empty: false,
        lines: |setup, key| vec![setup.written(key), setup.written(&format!("{key}b"))],
    },
    Odd {
        name: "two keys in one line",
        is_empty: false,
        lines: |setup, key| vec![[setup.written(key), setup.written(&format!("{key}b"))].join(&b", "[..])],
    },
    Odd {
        name: "a quote that does not end",
        is_empty: false,
        lines: |_, key| vec![format!("\"{key}").into_bytes()],
    },
    Odd {
        name: "a key of 3000 characters",
        is_empty: false,
        lines: |setup, key| vec![setup.written(&format!("{key}{}", "k".repeat(LONG_CHARS - key.len())))],
    },
    Odd {
        name: "a key that is not ASCII",
        is_empty: false,
        lines: |setup, key| vec![setup.written(&format!("{key}-é"))],
    },
];

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (mut refused, mut honoured, mut wrong) = (0, 0, Vec::new());
    for odd in &ODD {
        // The timeline shows the first that went wrong.
        if wrong.is_empty() {
            context.round();
        }
        match send_twice(context, odd).await? {
            OddKey::Refused => refused += 1,
            OddKey::Honoured => honoured += 1,
            OddKey::Wrong(why) => wrong.push(why),
        }
    }
    if !wrong.is_empty() {
        return Err(Stop::Violated(wrong.join("; ")));
    }
    Ok(format!("{refused} of {} odd keys were refused, {honoured} honoured", ODD.len()))
}

/// What became of an odd key.
enum OddKey {
    Refused,
    Honoured,
    Wrong(String),
}

async fn send_twice(context: &mut ScenarioContext<'_>, odd: &Odd) -> Result<OddKey, Stop> {
    let before = context.effects().await?;
    let key = context.key();
    let name = context.setup.check.key_header.clone();
    let lines = (odd.lines)(context.setup, &key);
    let mut request: Request = context.setup.request().called(odd.name);
    for line in lines {
        request = request.field(&name, line);
    }
    let shots = [context.send(request.clone()).await?, context.send(request).await?];
    let [Some(one), Some(other)] = shots.each_ref().map(|shot| shot.answer()) else {
        return Ok(OddKey::Wrong(format!("{} got {}", odd.name, shots[1].ending)));
    };
    if let Some(failure) = [one, other].into_iter().find(|answer| answer.status >= 500) {
        return Ok(OddKey::Wrong(format!("{} got {failure}", odd.name)));
    }
    let expected = [one, other].iter().filter(|answer| answer.is_success()).count();
    if expected == 0 {
        return Ok(OddKey::Refused);
    }
    let expected = if odd.is_empty { 2 } else { 1 };
    let ran_twice = match context.runs(before, expected).await? {
        Some(runs) => runs > 1,
        None => context.baseline().tells_apart && one.body != other.body,
    };
    if odd.is_empty && !ran_twice && (context.setup.oracle.sees() || context.baseline().tells_apart) {
        let why = "an empty key is taken for a key, and all who send one share an answer";
        return Ok(OddKey::Wrong(why.to_owned()));
    }
    if !odd.is_empty && ran_twice {
        let name = odd.name;
        return Ok(OddKey::Wrong(format!(
            "{name} is ignored: the client takes its retry for safe, and it ran twice"
        )));
    }
    Ok(OddKey::Honoured)
}
