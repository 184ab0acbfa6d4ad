//! Checks what must have ended some time after the last fault: no intent with a worker waits, none is held without
//! running work, none is unknown that never began, and every answered outcome is stored.

use onceward::receipt::{Claim, Status};
use onceward::{Answer, Completed, Id, OnUnknown, Prior, Recorded};

use super::Violation;
use super::facts::{CallFacts, Facts, Moment, Span};
use crate::sim::executor::Process;
use crate::sim::history::{CallResult, name};

pub(super) const COMPLETED: &str = "what was left or enqueued is done in the end";
pub(super) const NEVER_BEGAN: &str = "nothing that never began is unknown while its process lives";
pub(super) const ANSWERED: &str = "what was answered is on record later";

pub(super) fn check(facts: &Facts, violations: &mut Vec<Violation>) {
    let Some(now) = facts.patience else { return };
    for id in facts.spans.keys() {
        let Some(span) = facts.at(id, now) else { continue };
        if let Some((rule, detail)) = left(facts, id, span, now) {
            let detail = format!("{}: {detail}", name(id));
            violations.push(Violation { rule, event: now.event, detail });
        }
    }
    for call in facts.calls.values() {
        for (at, told) in &call.told {
            let CallResult::Answer(answer) = told else { continue };
            let Answer::Completed(ran) = &**answer else { continue };
            if *at < now && ran.recorded == Recorded::NotYet && !is_kept_word(facts, call, ran, now) {
                let detail = format!("{}: what call {} was answered is not", name(&call.id), call.call.0);
                violations.push(Violation { rule: ANSWERED, event: now.event, detail });
            }
        }
    }
}

/// A flaw of a record that is there when everything should be over.
fn left(facts: &Facts, id: &Id, span: &Span, now: Moment) -> Option<(&'static str, &'static str)> {
    let over = span.due_until(now);
    let worked_on = facts.worked_on(id);
    match &span.receipt.status {
        Status::Held(_) if !over => Some((COMPLETED, "is held although nobody works on it")),
        // Steps go on with their intents.
        Status::Held(held) => {
            let both = |rule| (held.on_unknown, rule) == (OnUnknown::Retry, OnUnknown::Retry);
            if worked_on.is_some_and(|workers| both(workers.policy.on_unknown())) {
                return Some((COMPLETED, "is still where its owner left it"));
            }
            never_began(facts, id, &held.claim, held.on_unknown)
        }
        // A worker that holds unknown outcomes leaves this one to be settled.
        Status::Waiting(waiting) if waiting.job.is_some() && over => {
            let repeats = |rule| waiting.prior != Prior::Unknown || rule == OnUnknown::Retry;
            worked_on
                .is_some_and(|workers| repeats(workers.policy.on_unknown()))
                .then_some((COMPLETED, "still waits for a worker"))
        }
        // Whether its own run began or not, an earlier one may have had its effect.
        Status::Unknown(unknown) if unknown.prior == Prior::Unknown => None,
        Status::Unknown(unknown) => never_began(facts, id, &unknown.claim, OnUnknown::Hold),
        _ => None,
    }
}

/// A claim whose work never began is released, and the release is retried for as long as its process lives: for
/// two leases after its answer was lost, in case the write itself is late. A process that was away meanwhile
/// may rightly think that this time is over.
fn never_began(
    facts: &Facts,
    id: &Id,
    claim: &Claim,
    rule: OnUnknown,
) -> Option<(&'static str, &'static str)> {
    let first = facts.claim(id, claim.fence)?;
    let begun = facts.run(id, claim.fence).is_some();
    if begun || rule == OnUnknown::Retry || facts.is_named(id, claim) || !lives_on(facts, first.by) {
        return None;
    }
    let lease_us = first.due_us.saturating_sub(first.from.at_us);
    let late = first.from.at_us > first.sent_us.saturating_add(lease_us * 2);
    let absent = facts.was_absent(first.by, first.sent_us, first.from.at_us.saturating_add(lease_us * 2));
    (!late && !absent).then_some((NEVER_BEGAN, "never began, and is not given back"))
}

fn lives_on(facts: &Facts, process: Process) -> bool {
    !facts.crashed.contains_key(&process)
}

/// An outcome that was answered and could not be written yet is written for as long as the process lives, where
/// nobody else may run the intent meanwhile. An operator's word that came first stands.
fn is_kept_word(facts: &Facts, call: &CallFacts, ran: &Completed, now: Moment) -> bool {
    let claim = facts.claim(&call.id, ran.fence);
    let rule = claim.map(|span| &span.receipt.status);
    let Some(Status::Held(held)) = rule else { return true };
    let recorded = facts.spans.get(&call.id).into_iter().flatten().any(|span| match &span.receipt.status {
        Status::Done(done) => {
            done.claim.fence == ran.fence && span.receipt.status.outcome() == Some(&ran.outcome)
        }
        _ => false,
    });
    held.on_unknown == OnUnknown::Retry
        || recorded
        || !lives_on(facts, call.process)
        || facts.settled(&call.id, ran.fence, now.event, |_| true)
        // A step goes with its parent, also where its own process was told to forget that one.
        || call.id.parent().is_some_and(|parent| {
            facts.erased(&parent, now.event).is_some() || facts.is_to_be_forgotten(&parent, now.event, None)
        })
        || facts.is_forgotten_elsewhere(&call.id, ran.fence, call.process, now.event)
}
