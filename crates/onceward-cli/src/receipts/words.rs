//! What a receipt means, and what to do next, in words for an operator.

use crate::admin::shape::{ReceiptShown, State, Verdict};

/// Whether somebody has to say what became of it.
pub fn is_in_doubt(receipt: &ReceiptShown) -> bool {
    match receipt.state {
        State::Unknown => true,
        // The doubt is there, only nobody has written it down yet.
        State::Held => receipt.on_unknown.as_deref() == Some("hold"),
        State::Dead => is_prior_in_doubt(receipt),
        State::Waiting | State::Done | State::Gone => false,
    }
}

/// Whether one of its tries may have had its effect.
fn is_prior_in_doubt(receipt: &ReceiptShown) -> bool {
    receipt.prior.as_deref() == Some("in_doubt")
}

/// Whether somebody may say what became of it. Of what is dead, they may, also if nothing is in doubt.
pub fn can_be_settled(receipt: &ReceiptShown) -> bool {
    is_in_doubt(receipt) || receipt.state == State::Dead
}

/// In one or two sentences.
pub fn meaning(receipt: &ReceiptShown) -> String {
    if let Some(why) = &receipt.unreadable {
        return format!("It cannot be read: {why}.");
    }
    let left = receipt.due_in_ms.map_or("forever".into(), |ms| format!("for another {}", time(ms)));
    let ago = time(receipt.due_in_ms.unwrap_or_default());
    match (receipt.state, receipt.on_unknown.as_deref()) {
        (State::Waiting, _) if receipt.input_bytes.is_none() => {
            "An earlier run left no outcome. The next retry runs.".into()
        }
        (State::Waiting, _) => {
            let when = match receipt.due_in_ms {
                Some(ms) if ms > 0 => format!("may begin in {}", time(ms)),
                _ => "may begin now".into(),
            };
            format!(
                "It waits for a worker, or for somebody who asks: its next try {when}. {}",
                tries(receipt)
            )
        }
        (State::Dead, _) => {
            let doubt =
                if is_prior_in_doubt(receipt) { " One of the tries may have taken effect." } else { "" };
            format!("It is given up until somebody decides. {}{doubt}", tries(receipt))
        }
        (State::Held, None) => {
            format!("It is running. Its lease holds {left} and is renewed while it lives.")
        }
        (State::Held, Some("retry")) => {
            format!("Its owner fell silent {ago} ago. The next retry takes it over by itself.")
        }
        (State::Held, Some(_)) => {
            format!("Its owner fell silent {ago} ago, before it ended. It may or may not have taken effect.")
        }
        (State::Unknown, _) => {
            let how = match receipt.doubt.as_deref() {
                Some("lease_ended") => "Its owner died or lost touch before it ended",
                Some("reported") => "The service was asked, and no answer came back",
                Some("panicked") => "The service broke down before it ended",
                Some("dropped") => "It was cut off before it ended",
                _ => "It ended without an answer",
            };
            format!("{how}. It may or may not have taken effect, and is not run again by itself.")
        }
        (State::Done, _) if receipt.closed.is_some() => {
            let how = match receipt.closed.as_deref() {
                Some("cancelled") => "It was cancelled before it began",
                Some("discarded") => "It was given up after its tries",
                Some("undone") => "It was undone before it began",
                _ => "It was closed",
            };
            format!("{how}. It is not run, and every retry is refused {left}.")
        }
        (State::Done, _) => {
            let what = match receipt.verdict {
                Some(Verdict::Failed) => "It failed, and that is the answer",
                _ => "It is done",
            };
            format!("{what}. Every retry gets the same answer {left}.")
        }
        (State::Gone, _) => {
            format!("It was done, and its answer has been forgotten. Retries are refused {left}.")
        }
    }
}

/// How often it was tried, and what the last try said.
fn tries(receipt: &ReceiptShown) -> String {
    let tries = match receipt.tries.unwrap_or_default() {
        0 => return "It was not tried yet.".into(),
        1 => "It was tried once".to_owned(),
        tries => format!("It was tried {tries} times"),
    };
    match &receipt.last_error {
        Some(error) => format!("{tries}; the last error: {}.", harmless(error).trim_end_matches('.')),
        None => format!("{tries}."),
    }
}

/// What to do about it.
pub fn next(receipt: &ReceiptShown) -> String {
    if receipt.unreadable.is_some() {
        return "Keep a copy of the store, and report it. Other receipts are not affected.".into();
    }
    let id = super::shown_id(receipt);
    if receipt.state == State::Dead && !is_in_doubt(receipt) {
        return format!(
            "Fix what stood in the way. Then:\n\
             \x20 try it again  onceward receipts dead retry {id}\n\
             \x20 give it up    onceward receipts dead discard {id}"
        );
    }
    if !is_in_doubt(receipt) {
        return "Nothing to do.".into();
    }
    let fence = receipt.fence.unwrap_or_default();
    let done = if is_http(receipt) {
        "--done --status 201 --body '…'"
    } else {
        "--done --verdict succeeded --body '…'"
    };
    format!(
        "Look into the service (or ask the party that has the effect) whether it happened. Then:\n\
         \x20 it did      onceward receipts settle --fence {fence} {done} {id}\n\
         \x20 it did not  onceward receipts settle --fence {fence} --not-done {id}\n\
         If you cannot tell, leave it: nothing runs twice while it is unknown."
    )
}

/// Whether it is of a request through the gateway: those operations begin with a method and a path.
fn is_http(receipt: &ReceiptShown) -> bool {
    let method = receipt.operation.split_once(' ').map(|(method, _)| method);
    method.is_some_and(|method| method.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// A length of time as a person says it. Of a time that is over, how long ago that was.
pub fn time(ms: i64) -> String {
    let ms = ms.unsigned_abs();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// A word as a shell takes it back.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Text that others wrote, without characters that control a terminal.
pub fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '�' } else { letter }).collect()
}

#[cfg(test)]
#[path = "words_test.rs"]
mod tests;
