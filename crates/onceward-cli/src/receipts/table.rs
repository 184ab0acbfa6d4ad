//! Prints receipts: many as a table, one in detail.

use std::fmt::Write;

use super::explain::{
    duration_text, is_outcome_unknown, meaning, next, shell_quoted, without_control_characters,
};
use crate::admin::shape::{OutcomeShown, ReceiptShown, State, Verdict};

/// A table of receipts, and below it what to do next, if anything.
pub fn table(receipts: &[ReceiptShown], more: bool) -> String {
    if receipts.is_empty() {
        return "No receipts.\n".into();
    }
    let mut out = columns(
        ["STATE", "SCOPE", "OPERATION", "KEY", "AGE", "UNTIL", "LAST ERROR"],
        receipts.iter().map(row),
    );
    let unknown = receipts.iter().filter(|receipt| is_outcome_unknown(receipt)).count();
    if more {
        let _ = writeln!(out, "\nThere are more; see --limit, --state, --scope and --operation.");
    }
    if let Some(first) = receipts.iter().find(|receipt| is_outcome_unknown(receipt)) {
        let intent = super::shell_arguments(first);
        let _ = writeln!(
            out,
            "\n{unknown} unknown: may or may not have taken effect, and not run again until settled. Begin with\n  onceward receipts show {intent}"
        );
    }
    out
}

/// A table of dead intents with their last errors, and below it what to do next.
pub fn dead(receipts: &[ReceiptShown], more: bool) -> String {
    let Some(first) = receipts.first() else { return "No dead intents.\n".into() };
    let rows = receipts.iter().map(|receipt| {
        let tries = receipt.tries.map_or_else(String::new, |tries| tries.to_string());
        let why = receipt.unreadable.as_ref().or(receipt.last_error.as_ref());
        let why = without_control_characters(why.map_or("", |why| why.as_str()));
        [
            shell_quoted(&receipt.scope),
            shell_quoted(&receipt.operation),
            shell_quoted(&receipt.key),
            tries,
            why,
        ]
    });
    let mut out = columns(["SCOPE", "OPERATION", "KEY", "TRIES", "LAST ERROR"], rows);
    if more {
        let _ = writeln!(out, "\nThere are more; see --limit, --scope and --operation.");
    }
    let intent = super::shell_arguments(first);
    let _ = writeln!(
        out,
        "\nRetry or discard each when the cause is fixed. Begin with\n  onceward receipts show {intent}"
    );
    out
}

/// Rows below a header, each column as wide as its widest cell.
pub fn columns<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

/// Characters of a last error in a table.
const ERROR_CHARACTERS: usize = 60;

/// Scope, operation and key are quoted for a shell, so that they can be copied into a command.
fn row(receipt: &ReceiptShown) -> [String; 7] {
    let state = match (receipt.state, receipt.verdict) {
        _ if receipt.unreadable.is_some() => "unreadable".into(),
        (State::Done, Some(Verdict::Failed)) => "done (failed)".into(),
        (State::Done, None) if let Some(closed) = &receipt.closed => closed.clone(),
        (State::Held, _) if receipt.on_unknown.is_some() => "held (silent)".into(),
        (state, _) => state.name().to_owned(),
    };
    let until = match receipt.due_in_ms {
        None if receipt.state == State::Unknown => "settled".into(),
        None if receipt.state == State::Dead => "decided".into(),
        None => "forever".into(),
        Some(ms) if ms < 0 => format!("{} ago", duration_text(ms)),
        Some(ms) => format!("in {}", duration_text(ms)),
    };
    let age = receipt
        .created_ms_ago
        .map_or_else(String::new, |ms| duration_text(i64::try_from(ms).unwrap_or(i64::MAX)));
    let error = receipt.last_error.as_deref().map(without_control_characters).unwrap_or_default();
    let error = match error.char_indices().nth(ERROR_CHARACTERS) {
        Some((end, _)) => format!("{}…", &error[..end]),
        None => error,
    };
    let [scope, operation, key] =
        [&receipt.scope, &receipt.operation, &receipt.key].map(|part| shell_quoted(part));
    [state, scope, operation, key, age, until, error]
}

/// One receipt in detail, what it means, and what to do next.
pub fn details(receipt: &ReceiptShown) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    line("scope", &receipt.scope);
    line("operation", &receipt.operation);
    line("key", &receipt.key);
    line("state", receipt.state.name());
    if let Some(fence) = receipt.fence {
        line("fence", &fence.to_string());
    }
    if let Some(ms) = receipt.created_ms_ago {
        line("created", &ago(ms));
    }
    if let Some(ms) = receipt.updated_ms_ago {
        line("updated", &ago(ms));
    }
    match (receipt.owner.as_deref(), receipt.attempt.as_deref()) {
        (Some("ticket"), Some(attempt)) => {
            line("held by", &format!("a claim through the receipts API, attempt {attempt}…"));
        }
        (Some(_), Some(attempt)) => line("held by", &format!("a run, attempt {attempt}…")),
        (None, Some(attempt)) => line("attempt", &format!("{attempt}…")),
        (_, None) => {}
    }
    if let Some(tries) = receipt.tries {
        line("tries", &tries.to_string());
    }
    if let Some(bytes) = receipt.input_bytes {
        line("input", &format!("{bytes} bytes"));
    }
    if let Some(error) = &receipt.last_error {
        line("last error", &without_control_characters(error));
    }
    if let Some(outcome) = &receipt.outcome {
        line("answer", &answer(outcome));
    }
    let _ = write!(out, "\n{}\n{}\n", meaning(receipt), next(receipt));
    out
}

fn ago(ms: u64) -> String {
    format!("{} ago", duration_text(i64::try_from(ms).unwrap_or(i64::MAX)))
}

fn answer(outcome: &OutcomeShown) -> String {
    let verdict = match outcome.verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Failed => "failed",
    };
    if let Some(note) = &outcome.omitted {
        return format!("{verdict}, not kept ({})", without_control_characters(note));
    }
    let (head, body, base64) = match &outcome.http {
        Some(http) => (http.status.to_string(), &http.body, &http.body_base64),
        None => (verdict.to_owned(), &outcome.body, &outcome.body_base64),
    };
    match (body, base64) {
        (Some(body), _) => format!("{head} {}", without_control_characters(body)),
        (None, Some(base64)) => format!("{head}, not text, as base64: {base64}"),
        (None, None) => head,
    }
}
