//! What was begun and left, in worlds with completers: some time after the last fault none of it is left.

use onceward::OnUnknown;
use onceward::receipt::Status;

use super::Violation;
use super::facts::{Facts, Moment};
use crate::sim::history::{Event, What, name};

pub(super) const COMPLETED: &str = "what was left is completed";

pub(super) fn check(history: &[Event], facts: &Facts, violations: &mut Vec<Violation>) {
    for (event, Event { what, at_us, .. }) in history.iter().enumerate() {
        if !matches!(what, What::Patience) {
            continue;
        }
        let now = Moment { event, at_us: *at_us };
        // Steps go on with their intents.
        for (id, spans) in facts.spans.iter().filter(|(id, _)| !id.is_step()) {
            let left = spans.iter().find(|span| span.from < now && span.to > now && span.due_until(now));
            let Some(Status::Held(held)) = left.map(|span| &span.receipt.status) else { continue };
            if held.on_unknown == OnUnknown::Retry {
                let detail = format!("{}: is still where its owner left it", name(id));
                violations.push(Violation { rule: COMPLETED, event, detail });
            }
        }
    }
}
