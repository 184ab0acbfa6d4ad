//! Explains a receipt to an operator: what its state means, and what to do next.

use crate::admin::shape::{ReceiptShown, State, Verdict};

/// Returns whether the outcome is unknown and must be settled.
pub fn is_outcome_unknown(receipt: &ReceiptShown) -> bool {
    match receipt.state {
        State::Unknown => true,
        // Its lease has ended, and the store does not have the state `unknown` yet.
        State::Held => receipt.on_unknown.as_deref() == Some("hold"),
        State::Dead => is_prior_outcome_unknown(receipt),
        State::Waiting | State::Done | State::Gone => false,
    }
}

/// Whether an earlier try may have taken effect.
fn is_prior_outcome_unknown(receipt: &ReceiptShown) -> bool {
    receipt.prior.as_deref() == Some("unknown")
}

/// Returns whether it can be settled. A dead intent can be, even if none of its tries has an unknown outcome.
pub fn can_be_settled(receipt: &ReceiptShown) -> bool {
    is_outcome_unknown(receipt) || receipt.state == State::Dead
}

/// What the state of a receipt means, in one or two sentences.
pub fn meaning(receipt: &ReceiptShown) -> String {
    if let Some(why) = &receipt.unreadable {
        return format!("It cannot be read: {why}.");
    }
    let left = receipt.due_in_ms.map_or("forever".into(), |ms| format!("for another {}", duration_text(ms)));
    let ago = duration_text(receipt.due_in_ms.unwrap_or_default());
    match (receipt.state, receipt.on_unknown.as_deref()) {
        (State::Waiting, _) if receipt.input_bytes.is_none() => {
            "An earlier run left no outcome. The next retry runs.".into()
        }
        (State::Waiting, _) => {
            let when = match receipt.due_in_ms {
                Some(ms) if ms > 0 => format!("may begin in {}", duration_text(ms)),
                _ => "may begin now".into(),
            };
            format!("It waits for a worker or for a retry: its next try {when}. {}", tries(receipt))
        }
        (State::Dead, _) => {
            let effect = if is_prior_outcome_unknown(receipt) {
                " One of the tries may have taken effect."
            } else {
                ""
            };
            format!(
                "It is not tried again until it is retried by hand or discarded. {}{effect}",
                tries(receipt)
            )
        }
        (State::Held, None) => {
            format!("It is running. Its lease lasts {left}, and is renewed while its process lives.")
        }
        (State::Held, Some("retry")) => {
            format!("Its lease ended {ago} ago without an outcome. The next retry runs it again.")
        }
        (State::Held, Some(_)) => {
            format!("Its lease ended {ago} ago without an outcome. It may or may not have taken effect.")
        }
        (State::Unknown, _) => {
            let how = unknown_reason(receipt);
            format!("{how}. It may or may not have taken effect, and is not run again until it is settled.")
        }
        (State::Done, _) if receipt.closed.is_some() => {
            let how = match receipt.closed.as_deref() {
                Some("cancelled") => "It was cancelled before it began",
                Some("discarded") => "It was discarded after its tries",
                Some("undone") => "It was undone before it began",
                _ => "It was closed",
            };
            format!("{how}. It is not run, and every retry is refused {left}.")
        }
        (State::Done, _) => {
            let what = match receipt.verdict {
                Some(Verdict::Failed) => "It failed, and the failure is final",
                _ => "It is done",
            };
            format!("{what}. Every retry gets the same answer {left}.")
        }
        (State::Gone, _) => {
            format!(
                "It was done, and its answer was removed at the end of its retention. Retries are refused {left}."
            )
        }
    }
}

/// Why the outcome is unknown.
fn unknown_reason(shown: &ReceiptShown) -> &'static str {
    match shown.reason.as_deref() {
        Some("lease_ended") => "Its process died or lost its lease before an outcome was recorded",
        Some("reported") => "The request was sent, and no answer came back",
        Some("panicked") => "The code panicked before an outcome was recorded",
        Some("dropped") => "The run was cancelled before an outcome was recorded",
        _ => "It ended without an outcome",
    }
}

/// The number of tries, and the last error.
fn tries(receipt: &ReceiptShown) -> String {
    let tries = match receipt.tries.unwrap_or_default() {
        0 => return "It has not been tried yet.".into(),
        1 => "It was tried once".to_owned(),
        tries => format!("It was tried {tries} times"),
    };
    match &receipt.last_error {
        Some(error) => {
            format!("{tries}; the last error: {}.", without_control_characters(error).trim_end_matches('.'))
        }
        None => format!("{tries}."),
    }
}

/// What the operator should do next.
pub fn next(receipt: &ReceiptShown) -> String {
    if receipt.unreadable.is_some() {
        return "Keep a copy of the store, and report it. Other receipts are not affected.".into();
    }
    let id = super::shell_arguments(receipt);
    if receipt.state == State::Dead && !is_outcome_unknown(receipt) {
        return format!(
            "Fix the cause. Then:\n\
             \x20 retry it    onceward receipts dead retry {id}\n\
             \x20 discard it  onceward receipts dead discard {id}"
        );
    }
    if !is_outcome_unknown(receipt) {
        return "Nothing to do.".into();
    }
    let fence = receipt.fence.unwrap_or_default();
    let done = if is_http(receipt) {
        "--done --status 201 --body '…'"
    } else {
        "--done --verdict succeeded --body '…'"
    };
    format!(
        "Find out from the service whether the effect happened. Then:\n\
         \x20 it did      onceward receipts settle --fence {fence} {done} {id}\n\
         \x20 it did not  onceward receipts settle --fence {fence} --not-done {id}\n\
         If you cannot tell, leave it: nothing runs twice while it is unknown."
    )
}

/// Whether the receipt is of a request through the gateway, whose operation begins with a method.
fn is_http(receipt: &ReceiptShown) -> bool {
    let method = receipt.operation.split_once(' ').map(|(method, _)| method);
    method.is_some_and(|method| method.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// A duration in one unit. The sign is ignored: a negative value is a time in the past.
pub fn duration_text(ms: i64) -> String {
    let ms = ms.unsigned_abs();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// A word quoted for a shell, if it needs quotes.
pub fn shell_quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Text from elsewhere, with control characters replaced so that it cannot control the terminal.
pub fn without_control_characters(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '�' } else { letter }).collect()
}

#[cfg(test)]
#[path = "explain_test.rs"]
mod tests;
