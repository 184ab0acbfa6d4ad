//! Tracks effects that may have happened: from the end of such a run until its outcome is settled, every later run
//! records that an earlier outcome is unknown, and none of them frees the key.

use std::collections::BTreeSet;

use onceward::receipt::{Claim, Status};
use onceward::{Id, OnFailure, OnUnknown, Prior, Receipt};

use super::transitions::{Legal, Step, require};
use crate::sim::history::End;

pub(super) const FREED: &str = "a key is not free while an earlier outcome is unknown";

/// The intents of which an earlier run may have had its effect.
#[derive(Default)]
pub(super) struct UnknownEffects<'a> {
    open: BTreeSet<&'a Id>,
}

impl<'a> UnknownEffects<'a> {
    /// Follows one write.
    pub(super) fn check_write(&mut self, step: &Step<'a>) -> Legal {
        let before = step.before.map(|before| &before.status);
        let open = self.open.contains(step.id);
        let now = match (before, step.after.map(|after| &after.status)) {
            (_, Some(Status::Done(_) | Status::Gone(_))) => false,
            (_, Some(Status::Waiting(waiting))) if waiting.prior == Prior::Settled => false,
            (Some(Status::Held(held)), Some(Status::Held(now))) if !held.claim.is_same_run(&now.claim) => {
                open || may_have_happened(step, &held.claim)
            }
            (Some(Status::Held(held)), Some(Status::Waiting(_))) => {
                open || may_have_happened(step, &held.claim)
            }
            // Where every run is safe to repeat, none of them stands in the way of the next.
            (Some(Status::Held(held)), Some(Status::Dead(_))) => open && held.on_unknown == OnUnknown::Hold,
            (_, None) if step.is_reopened() => false,
            (Some(Status::Held(held)), None) => {
                self.open.remove(step.id);
                return not_freed(step, open, &held.claim, held.on_unknown);
            }
            // An operator says that it did not happen.
            (Some(Status::Unknown(_)), None) if step.is_forgotten() => false,
            (Some(Status::Unknown(unknown)), None) => {
                self.open.remove(step.id);
                return not_freed(step, open, &unknown.claim, OnUnknown::Hold);
            }
            (_, None) => false,
            _ => open,
        };
        if now {
            self.open.insert(step.id);
        } else {
            self.open.remove(step.id);
        }
        let says_so = match step.after.map(|after| &after.status) {
            Some(Status::Held(held)) => held.prior == Prior::Unknown,
            Some(Status::Waiting(waiting)) => waiting.prior == Prior::Unknown,
            _ => true,
        };
        require(!now || says_so, FREED, "forgot that an earlier run may have had its effect")
    }
}

/// What lapsed where it may be repeated, and nobody asked for again, is forgotten in the end.
fn not_freed(step: &Step<'_>, open: bool, claim: &Claim, rule: OnUnknown) -> Legal {
    let abandoned =
        rule == OnUnknown::Retry && step.before.is_some_and(|before: &Receipt| before.due.is_over());
    let freed = !abandoned && (open || may_have_happened(step, claim));
    require(!freed, FREED, "was given back although an effect may have happened")
}

/// Whether the run of a claim may have had its effect, as far as anybody outside can tell by now.
fn may_have_happened(step: &Step<'_>, claim: &Claim) -> bool {
    let Some(run) = step.begun(claim) else { return false };
    match run.ended.filter(|(at, _)| at.event < step.event).map(|(_, how)| how) {
        Some(End::BeforeEffect | End::Suspended) => false,
        Some(End::Failed) => run.policy.on_failure() != OnFailure::Retry,
        _ => true,
    }
}
