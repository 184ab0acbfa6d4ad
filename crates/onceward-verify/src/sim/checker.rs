//! The checker of histories. It knows the protocol's promises and nothing of the engine: it reads a recorded history
//! and lists the violations in it.
//!
//! Each rule documents what is legal under faults, and why:
//!
//! * `receipts` follows each record through the writes that the store saw, and `transitions` knows which of
//!   them are legal. A lease is what the store stamped, not what its owner believes: a paused owner may
//!   continue to work after its lease, which cannot be prevented. Only its writes can be rejected.
//! * `unknown_effects` tracks which earlier runs may have had their effect, independently of the receipts.
//! * `jobs` compares inputs and tries with what was asked and what was begun.
//! * `runs` compares each run with its claim, `transactions` does so for runs in transactions.
//! * `answers` compares each answer with what the store held at some moment between the call and the answer. Any
//!   moment is legal, because an answer may be delayed on its way back.
//! * `liveness` finds what has not ended long after the last fault.

mod answers;
mod conditions;
mod entries;
mod facts;
mod jobs;
mod liveness;
mod receipts;
mod runs;
mod transactions;
mod transitions;
mod unknown_effects;

use std::fmt;

use super::history::{Event, EventKind};
use facts::Facts;

/// Every call gets an answer, and every simulation ends.
pub const ENDS: &str = "everything ends";

/// Every promise that the checker verifies.
pub const PROMISES: [&str; 32] = [
    transitions::OVERLAP,
    transitions::DONE,
    transitions::HOLD,
    transitions::INTENT,
    transitions::LEASE,
    transitions::DEAD,
    transitions::LATE,
    transitions::STEPS,
    transitions::EARLY,
    receipts::FENCE,
    receipts::RESTART,
    receipts::REOPENED,
    receipts::LIFE,
    unknown_effects::FREED,
    jobs::INPUT,
    jobs::TRIES,
    jobs::KEPT,
    runs::CLAIM,
    runs::RENEWED,
    runs::STOPPED,
    transactions::TOGETHER,
    answers::OWN,
    answers::SAME,
    answers::EXPIRED,
    answers::ERASED,
    answers::REFUSAL,
    answers::ERROR,
    answers::ENQUEUED,
    liveness::COMPLETED,
    liveness::NEVER_BEGAN,
    liveness::ANSWERED,
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
pub fn check(history: &[Event]) -> Vec<Violation> {
    let facts = Facts::gather(history);
    let mut violations = Vec::new();
    receipts::check(history, &facts, &mut violations);
    jobs::check(&facts, &mut violations);
    runs::check(&facts, &mut violations);
    transactions::check(history, &facts, &mut violations);
    answers::check(&facts, &mut violations);
    liveness::check(&facts, &mut violations);
    for (event, Event { what, .. }) in history.iter().enumerate() {
        if let EventKind::Wedged(detail) = what {
            violations.push(Violation { rule: ENDS, event, detail: detail.clone() });
        }
    }
    violations.sort_by_key(|violation| violation.event);
    violations
}
