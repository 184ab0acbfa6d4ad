//! The judge. It knows the protocol's promises and nothing of the engine: it reads a recorded history,
//! and names what must not have happened.
//!
//! What is legal under faults, and why, stands beside each rule:
//!
//! * [`receipts`] follows each record through the writes that the store saw. A lease is what the store
//!   stamped, not what its owner believes: a paused owner may well go on working after its lease, and
//!   nobody can keep it from that. What it can be kept from is every write.
//! * [`runs`] holds each run against the claim it was made under.
//! * [`answers`] holds what a caller was told against what the store held at some moment between the
//!   question and the answer. Any moment will do: an answer is always as old as its way back.
//! * [`completions`] looks for what was begun and left, where completers had the time to finish it.

mod answers;
mod completions;
mod facts;
mod receipts;
mod runs;

use std::fmt;

use super::history::{Event, What};
use facts::Facts;

/// That every call has an answer in the end, and every world an end.
pub const ENDS: &str = "everything ends";

/// Every promise that the judge watches over.
pub const PROMISES: [&str; 18] = [
    receipts::OVERLAP,
    receipts::FENCE,
    receipts::DONE,
    receipts::HOLD,
    receipts::INTENT,
    receipts::LEASE,
    receipts::RESTART,
    receipts::LIFE,
    runs::CLAIM,
    runs::RENEWED,
    runs::STOPPED,
    answers::OWN,
    answers::SAME,
    answers::EXPIRED,
    answers::REFUSAL,
    answers::ERROR,
    completions::COMPLETED,
    ENDS,
];

/// Something that must not have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise is broken.
    pub rule: &'static str,
    /// The number of the event that shows it.
    pub event: usize,
    /// What happened.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (event {})", self.rule, self.detail, self.event)
    }
}

/// All that is wrong with a history, in the order in which it shows.
pub fn judge(history: &[Event]) -> Vec<Violation> {
    let facts = Facts::gather(history);
    let mut violations = Vec::new();
    receipts::check(history, &facts, &mut violations);
    runs::check(&facts, &mut violations);
    answers::check(&facts, &mut violations);
    completions::check(history, &facts, &mut violations);
    for (event, Event { what, .. }) in history.iter().enumerate() {
        if let What::Wedged(detail) = what {
            violations.push(Violation { rule: ENDS, event, detail: detail.clone() });
        }
    }
    violations.sort_by_key(|violation| violation.event);
    violations
}
