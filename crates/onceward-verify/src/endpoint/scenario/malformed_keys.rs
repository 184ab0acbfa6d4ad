//! Requests whose keys are malformed.

use serde_json::{Value, json};

use super::super::check::KeyNotation;
use super::super::fault::FaultKind;
use super::super::message::Request;
use super::super::scenario_context::{OtherForm, ScenarioContext};
use super::super::setup::{Setup, with_value};
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "malformed-keys",
    promise: "A key that is accepted is honoured, however odd; one that is not is refused, not ignored.",
    by_key: true,
    lacks: |setup| {
        setup.check.key_parameter.is_some().then_some("the key is in the query, which has no form of its own")
    },
    plan,
    run: |context| Box::pin(run(context)),
};

/// Longer than any column that keys are kept in, shorter than what a server takes for a header.
const LONG_CHARS: usize = 3_000;

fn plan(setup: &Setup) -> Plan {
    let count = if setup.check.key_pointer.is_some() { ODD_VALUES.len() } else { ODD.len() };
    Plan::new(2 * count, format!("{count} odd keys, twice each"))
}

struct Odd {
    name: &'static str,
    /// Whether it amounts to no key at all.
    is_empty: bool,
    /// The values of the field, one for each line.
    lines: fn(&ScenarioContext<'_>, &str) -> Vec<Vec<u8>>,
}

const ODD: [Odd; 7] = [
    Odd { name: "an empty field", is_empty: true, lines: |_, _| vec![Vec::new()] },
    Odd { name: "an empty key in quotes", is_empty: true, lines: |_, _| vec![b"\"\"".to_vec()] },
    Odd {
        name: "two keys in two lines",
        is_empty: false,
        lines: |context, key| vec![context.written(key), context.written(&format!("{key}b"))],
    },
    Odd {
        name: "two keys in one line",
        is_empty: false,
        lines: |context, key| {
            vec![[context.written(key), context.written(&format!("{key}b"))].join(&b", "[..])]
        },
    },
    Odd {
        name: "a quote that does not end",
        is_empty: false,
        lines: |_, key| vec![format!("\"{key}").into_bytes()],
    },
    Odd {
        name: "a key of 3000 characters",
        is_empty: false,
        lines: |context, key| vec![context.written(&format!("{key}{}", "k".repeat(LONG_CHARS - key.len())))],
    },
    Odd {
        name: "a key that is not ASCII",
        is_empty: false,
        lines: |context, key| vec![context.written(&format!("{key}-é"))],
    },
];

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let (mut refused, mut honoured, mut ignored, mut wrong) = (0, 0, 0, Vec::new());
    let requests = odd_requests(context);
    let count = requests.len();
    for (name, is_empty, request) in requests {
        // The timeline shows the first that went wrong.
        if wrong.is_empty() {
            context.round();
        }
        match send_twice(context, name, is_empty, request).await? {
            OddKey::Refused => refused += 1,
            OddKey::Honoured => honoured += 1,
            OddKey::TakenForNone => ignored += 1,
            OddKey::Wrong(kind, why) => wrong.push((kind, why)),
        }
    }
    if let Some(kind) = wrong.iter().map(|(kind, _)| *kind).min() {
        let why: Vec<String> = wrong.into_iter().map(|(_, why)| why).collect();
        return Err(Stop::violated(kind, why.join("; ")));
    }
    let none = match ignored {
        0 => String::new(),
        1 => ", 1 empty one runs like no key".to_owned(),
        _ => format!(", {ignored} empty ones run like no key"),
    };
    Ok(format!("{refused} of {count} odd keys were refused, {honoured} honoured{none}"))
}

/// Odd keys in a body.
struct OddValue {
    name: &'static str,
    is_empty: bool,
    value: fn(&str) -> Value,
}

const ODD_VALUES: [OddValue; 7] = [
    OddValue { name: "an empty text", is_empty: true, value: |_| json!("") },
    OddValue { name: "null", is_empty: true, value: |_| Value::Null },
    OddValue { name: "a number", is_empty: false, value: |key| json!(number(key)) },
    OddValue { name: "a list", is_empty: false, value: |key| json!([key]) },
    OddValue { name: "an object", is_empty: false, value: |key| json!({ "key": key }) },
    OddValue {
        name: "a key of 3000 characters",
        is_empty: false,
        value: |key| json!(format!("{key}{}", "k".repeat(LONG_CHARS - key.len()))),
    },
    OddValue { name: "a key that is not ASCII", is_empty: false, value: |key| json!(format!("{key}-é")) },
];

/// A number that no other key gives.
fn number(key: &str) -> u64 {
    key.bytes().fold(7, |number: u64, byte| number.wrapping_mul(31).wrapping_add(byte.into())) >> 12
}

/// A key of either kind, in a request.
fn odd_requests(context: &mut ScenarioContext<'_>) -> Vec<(&'static str, bool, Request)> {
    let mut requests = Vec::new();
    if let Some(pointer) = context.setup.check.key_pointer.clone() {
        for odd in &ODD_VALUES {
            let key = context.key();
            let plain = context.plain();
            let json = serde_json::from_slice(&plain.body).ok();
            let Some(json) = with_value(json.as_ref(), &pointer, (odd.value)(&key)) else { continue };
            let request = Request { key, ..plain.body(json.to_string().into()) }.called(odd.name);
            requests.push((odd.name, odd.is_empty, request));
        }
        return requests;
    }
    let name = context.setup.check.key_header.clone();
    // Where quotes are a part of the key, two quotes are a key like any other.
    let quotes_count = context.key_notation == KeyNotation::Raw
        && context.baseline().other_form != OtherForm::Same
        || context.baseline().other_form == OtherForm::Another;
    for odd in &ODD {
        let key = context.key();
        let lines = (odd.lines)(context, &key);
        let is_empty = odd.is_empty && !(quotes_count && lines[0].len() == 2);
        let plain = Request { key, ..context.plain() }.called(odd.name);
        let request = lines.into_iter().fold(plain, |request, line| request.field(&name, line));
        requests.push((odd.name, is_empty, request));
    }
    requests
}

/// What became of an odd key.
enum OddKey {
    Refused,
    Honoured,
    /// It is empty, and both requests ran: as without a key, which is another scenario.
    TakenForNone,
    Wrong(FaultKind, String),
}

async fn send_twice(
    context: &mut ScenarioContext<'_>,
    name: &'static str,
    is_empty: bool,
    request: Request,
) -> Result<OddKey, Stop> {
    let before = context.effects().await?;
    let shots = [context.send(request.clone()).await?, context.send(request).await?];
    let [Some(one), Some(other)] = shots.each_ref().map(|shot| shot.answer()) else {
        return Ok(OddKey::Wrong(FaultKind::WrongAnswer, format!("{name} got {}", shots[1].ending)));
    };
    if let Some(failure) = [one, other].into_iter().find(|answer| answer.is_failure()) {
        return Ok(OddKey::Wrong(FaultKind::WrongAnswer, format!("{name} got {failure}")));
    }
    let done = [one, other].iter().filter(|answer| answer.is_success()).count();
    if done == 0 {
        return Ok(OddKey::Refused);
    }
    let expected = if is_empty { 2 } else { 1 };
    let can_tell = context.setup.oracle.sees() || context.baseline().tells_apart;
    let ran_twice = match context.runs(before, expected).await? {
        Some(runs) => runs > 1,
        None => context.baseline().tells_apart && one.body != other.body,
    };
    Ok(match (is_empty, ran_twice) {
        (true, true) => OddKey::TakenForNone,
        (true, false) if can_tell => {
            context.trace.is_wrong(name);
            OddKey::Wrong(
                FaultKind::WrongAnswer,
                format!("{name} is taken for a key, and all who send one share an answer"),
            )
        }
        (false, true) => OddKey::Wrong(
            FaultKind::DoubleEffect,
            format!("{name} is ignored: the client takes its retry for safe, and it ran twice"),
        ),
        _ => OddKey::Honoured,
    })
}
