//! Receipts on a screen: many as a table, one as a card.

use std::fmt::Write;

use super::words::{harmless, is_in_doubt, meaning, next, quoted, time};
use crate::admin::shape::{OutcomeShown, ReceiptShown, State, Verdict};

/// A table with a line on what to do, if there is something to do.
pub fn table(receipts: &[ReceiptShown], more: bool) -> String {
    if receipts.is_empty() {
        return "No receipts.\n".into();
    }
    let mut out = columns(["STATE", "SCOPE", "OPERATION", "KEY", "UNTIL"], receipts.iter().map(row));
    let doubts = receipts.iter().filter(|receipt| is_in_doubt(receipt)).count();
    if more {
        let _ = writeln!(out, "\nThere are more; see --limit, --state, --scope and --operation.");
    }
    if let Some(first) = receipts.iter().find(|receipt| is_in_doubt(receipt)) {
        let which = super::shown_id(first);
        let _ = writeln!(
            out,
            "\n{doubts} in doubt: may or may not have taken effect, held until somebody settles it. Begin with\n  onceward receipts show {which}"
        );
    }
    out
}

/// The dead, with why they are, and a line on what to do.
pub fn dead(receipts: &[ReceiptShown], more: bool) -> String {
    let Some(first) = receipts.first() else { return "Nothing is dead.\n".into() };
    let rows = receipts.iter().map(|receipt| {
        let tries = receipt.tries.map_or_else(String::new, |tries| tries.to_string());
        let why = receipt.unreadable.as_ref().or(receipt.last_error.as_ref());
        let why = harmless(why.map_or("", |why| why.as_str()));
        [quoted(&receipt.scope), quoted(&receipt.operation), quoted(&receipt.key), tries, why]
    });
    let mut out = columns(["SCOPE", "OPERATION", "KEY", "TRIES", "LAST ERROR"], rows);
    if more {
        let _ = writeln!(out, "\nThere are more; see --limit, --scope and --operation.");
    }
    let which = super::shown_id(first);
    let _ = writeln!(
        out,
        "\nTry one again or give it up, when what stood in the way is fixed. Begin with\n  onceward receipts show {which}"
    );
    out
}

/// Rows under a head, each column as wide as it must be.
fn columns(head: [&str; 5], rows: impl Iterator<Item = [String; 5]>) -> String {
    let rows: Vec<[String; 5]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; 5];
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

/// Scope, operation and key stand as a shell takes them back, so that a line can be copied.
fn row(receipt: &ReceiptShown) -> [String; 5] {
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
        Some(ms) if ms < 0 => format!("{} ago", time(ms)),
        Some(ms) => format!("in {}", time(ms)),
    };
    [state, quoted(&receipt.scope), quoted(&receipt.operation), quoted(&receipt.key), until]
}

/// One receipt, what it means, and what to do next.
pub fn card(receipt: &ReceiptShown) -> String {
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
    if let (Some(tries), Some(bytes)) = (receipt.tries, receipt.input_bytes) {
        line("tries", &tries.to_string());
        line("input", &format!("{bytes} bytes"));
    }
    if let Some(error) = &receipt.last_error {
        line("last error", &harmless(error));
    }
    if let Some(outcome) = &receipt.outcome {
        line("answer", &answer(outcome));
    }
    let _ = write!(out, "\n{}\n{}\n", meaning(receipt), next(receipt));
    out
}

fn ago(ms: u64) -> String {
    format!("{} ago", time(i64::try_from(ms).unwrap_or(i64::MAX)))
}

fn answer(outcome: &OutcomeShown) -> String {
    let verdict = match outcome.verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Failed => "failed",
    };
    if let Some(note) = &outcome.omitted {
        return format!("{verdict}, not kept ({})", harmless(note));
    }
    let (head, body, base64) = match &outcome.http {
        Some(http) => (http.status.to_string(), &http.body, &http.body_base64),
        None => (verdict.to_owned(), &outcome.body, &outcome.body_base64),
    };
    match (body, base64) {
        (Some(body), _) => format!("{head} {}", harmless(body)),
        (None, Some(base64)) => format!("{head}, not text, as base64: {base64}"),
        (None, None) => head,
    }
}
