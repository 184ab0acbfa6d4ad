//! Receipts on a screen: many as a table, one as a card.

use std::fmt::Write;

use super::words::{harmless, is_in_doubt, meaning, next, quoted, time};
use crate::admin::shape::{OutcomeShown, ReceiptShown, State, Verdict};

/// A table with a line on what to do, if there is something to do.
pub fn table(receipts: &[ReceiptShown], more: bool) -> String {
    if receipts.is_empty() {
        return "No receipts.\n".into();
    }
    let head = ["STATE", "SCOPE", "OPERATION", "KEY", "UNTIL"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(receipts.iter().map(row)).collect();
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

/// Scope, operation and key stand as a shell takes them back, so that a line can be copied.
fn row(receipt: &ReceiptShown) -> [String; 5] {
    let state = match (receipt.state, receipt.verdict) {
        _ if receipt.unreadable.is_some() => "unreadable".into(),
        (State::Done, Some(Verdict::Failed)) => "done (failed)".into(),
        (State::Held, _) if receipt.on_unknown.is_some() => "held (silent)".into(),
        (state, _) => state.name().to_owned(),
    };
    let until = match receipt.due_in_ms {
        None if receipt.state == State::Unknown => "settled".into(),
        None => "for ever".into(),
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
    if let Some(outcome) = &receipt.outcome {
        line("answer", &answer(outcome));
    }
    let _ = write!(out, "\n{}\n{}\n", meaning(receipt), next(receipt));
    out
}

fn answer(outcome: &OutcomeShown) -> String {
    let verdict = match outcome.verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Failed => "failed",
    };
    if let Some(note) = &outcome.omitted {
        return format!("{verdict}, too large to keep ({})", harmless(note));
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
