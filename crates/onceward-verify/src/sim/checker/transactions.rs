//! Checks transactions: a business write, its receipt and what was enqueued with them are committed together or not
//! at all.

use std::collections::BTreeMap;

use onceward::Receipt;
use onceward::receipt::{Done, End as Ended, Status};

use super::Violation;
use super::facts::{CallFacts, Facts};
use super::runs::CLAIM;
use crate::sim::history::{Call, CallMethod, Event, EventKind, Stamp, Tx, name};

pub(super) const TOGETHER: &str = "a business write and its receipt are there together or not at all";

pub(super) fn check(history: &[Event], facts: &Facts, violations: &mut Vec<Violation>) {
    // The calls whose receipts were written in each transaction.
    let mut written: BTreeMap<Tx, Vec<Call>> = BTreeMap::new();
    for (event, Event { what, .. }) in history.iter().enumerate() {
        let mut wrong = |detail: String| violations.push(Violation { rule: TOGETHER, event, detail });
        match what {
            // What was done before is erased, if it was right to be.
            EventKind::Wrote { before: Some(before), after: Some(after), .. }
                if is_same_end(before, after) => {}
            EventKind::Wrote { id, after: Some(after), tx, .. } => {
                let Some(call) = of_transaction(facts, after) else { continue };
                match tx {
                    None => wrong(format!("{}: call {} wrote outside of it", name(id), call.call.0)),
                    Some(_) if call.way == CallMethod::EnqueueIn => {}
                    Some(tx) => written.entry(*tx).or_default().push(call.call),
                }
            }
            EventKind::Committed { tx, business } => {
                let receipts = written.remove(tx).unwrap_or_default();
                for call in business {
                    if !receipts.contains(call) {
                        wrong(format!("the business write of call {} has no receipt", call.0));
                    }
                }
                for call in receipts {
                    if !business.contains(&call) {
                        wrong(format!("the receipt of call {} has no business write", call.0));
                    }
                }
            }
            _ => {}
        }
    }
    for call in facts.calls.values().filter(|call| call.way.is_in_transaction()) {
        for begin in &call.begins {
            let claimed = facts.staged.iter().any(|staged| {
                staged.fence == Some(begin.fence) && staged.id == call.id && staged.at < begin.at
            });
            if !claimed {
                let detail = format!("{}: call {} works without one", name(&call.id), call.call.0);
                violations.push(Violation { rule: CLAIM, event: begin.at.event, detail });
            }
        }
    }
}

/// Whether both are the end of the same run.
fn is_same_end(before: &Receipt, after: &Receipt) -> bool {
    match (&before.status, &after.status) {
        (Status::Done(before), Status::Done(after)) => before.claim == after.claim,
        _ => false,
    }
}

/// The call whose transaction must have written this: for its outcome, or for what it enqueued.
fn of_transaction<'a>(facts: &'a Facts, after: &Receipt) -> Option<&'a CallFacts> {
    let (stamp, enqueued) = match &after.status {
        Status::Done(Done { end: Ended::Outcome(outcome), .. }) => (Stamp::of(outcome)?, false),
        Status::Waiting(waiting) => {
            // Put back to its beginning, it is somebody else's write.
            let job = waiting.job.as_ref().filter(|_| waiting.claim.fence.0 == after.version.0)?;
            (Stamp::read(&job.input)?, true)
        }
        _ => return None,
    };
    let call = facts.calls.get(&Call(stamp.call))?;
    let in_transaction =
        if enqueued { call.way == CallMethod::EnqueueIn } else { facts.charged.contains(&call.call) };
    in_transaction.then_some(call)
}
