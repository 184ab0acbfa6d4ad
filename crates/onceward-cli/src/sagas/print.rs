//! Sagas as text.

use std::fmt::Write as _;

use crate::admin::sagas::shape::{EndedShown, SagaShown, StepShown};
use crate::receipts::table::columns;

pub fn table(sagas: &[SagaShown]) -> String {
    if sagas.is_empty() {
        return "No sagas.\n".into();
    }
    let rows = sagas.iter().map(|saga| {
        let age = seconds(Some(saga.created_ms_ago));
        let [scope, name, key] = [&saga.scope, &saga.name, &saga.key].map(|part| clean(part));
        [saga.state.clone(), scope, name, key, age, clean(&why(saga))]
    });
    columns(["STATE", "SCOPE", "SAGA", "KEY", "AGE", "WHY"], rows)
}

/// Why a saga is in its state, in one line.
fn why(saga: &SagaShown) -> String {
    match (&saga.needs_person, &saga.ended) {
        (Some(needs), _) => {
            let step = needs.step.as_deref().unwrap_or("the saga itself");
            format!("{} of {step} is {}: {}", needs.direction, needs.state, needs.reason)
        }
        (None, Some(ended)) => ended.reason.clone().unwrap_or_default(),
        (None, None) => saga.undo_reason.clone().or_else(|| saga.last_error.clone()).unwrap_or_default(),
    }
}

pub fn detail(saga: &SagaShown) -> String {
    let mut out = String::new();
    let version = saga.version.map_or_else(String::new, |version| format!(" version {version}"));
    let _ = writeln!(out, "{} {}{version}: {}", clean(&saga.name), clean(&saga.key), saga.state);
    let why = why(saga);
    if !why.is_empty() {
        let _ = writeln!(out, "{}", clean(&why));
    }
    let input = saga.input.as_ref().or(saga.input_base64.as_ref());
    let _ = writeln!(out, "input: {}\n", clean(input.map_or("", String::as_str)));
    let rows = saga.steps.iter().map(|step| {
        let tries = step.tries.map_or_else(String::new, |tries| tries.to_string());
        [
            clean(&step.name),
            step.direction.clone(),
            state(step),
            tries,
            seconds(step.created_ms_ago),
            seconds(step.updated_ms_ago),
            clean(result(step)),
        ]
    });
    out.push_str(&columns(["STEP", "DIRECTION", "STATE", "TRIES", "BEGAN", "CHANGED", "RESULT"], rows));
    out
}

fn state(step: &StepShown) -> String {
    match (&step.ended, &step.closed, &step.state) {
        (Some(ended), ..) => ended.how.clone(),
        (None, Some(_), _) => "closed".to_owned(),
        (None, None, Some(state)) => state.clone(),
        (None, None, None) => "not begun".to_owned(),
    }
}

fn result(step: &StepShown) -> &str {
    let result = match &step.ended {
        Some(EndedShown { result, result_base64, reason, .. }) => {
            result.as_ref().or(result_base64.as_ref()).or(reason.as_ref())
        }
        None => step.last_error.as_ref(),
    };
    result.map_or("", String::as_str)
}

fn seconds(ms_ago: Option<u64>) -> String {
    ms_ago.map_or_else(String::new, |ms| format!("{}s", ms / 1_000))
}

/// What others have written, on one line of a terminal.
fn clean(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let shown = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().take(CHARACTERS_MAX).map(shown).collect()
}
