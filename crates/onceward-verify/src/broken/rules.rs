//! Broken rules: each replaces [`onceward::decide`] and is wrong in one cell of its table. Most ask
//! the right rules about a receipt that is not quite the one that was found.

use std::time::Duration;

use onceward::receipt::{Claim, Held, Status};
use onceward::{
    Ask, Decision, Due, OnDuplicate, OnExpired, OnUnknown, Prior, Receipt, Refusal, Takeover, decide,
};

/// Decides about the receipt as `change` leaves it.
fn decide_about(ask: &Ask, found: Option<&Receipt>, change: impl FnOnce(&mut Receipt)) -> Decision {
    let mut found = found.cloned();
    found.as_mut().map(change);
    decide(ask, found.as_ref())
}

fn is_over(found: Option<&Receipt>) -> bool {
    found.is_some_and(|receipt| receipt.due.is_over())
}

fn claim_in(status: &mut Status) -> Option<&mut Claim> {
    match status {
        Status::Waiting(waiting) => Some(&mut waiting.claim),
        Status::Held(held) => Some(&mut held.claim),
        Status::Done(done) => Some(&mut done.claim),
        Status::Unknown(unknown) => Some(&mut unknown.claim),
        Status::Dead(dead) => Some(&mut dead.claim),
        Status::Gone(_) => None,
    }
}

/// What was asked is not compared at all.
pub(super) fn fingerprint_ignored(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Some(claim) = claim_in(&mut receipt.status) {
            claim.fingerprint = *ask.fingerprint();
        }
    })
}

/// What was asked is compared once somebody has begun, not before.
pub(super) fn fingerprint_ignored_while_waiting(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Waiting(waiting) = &mut receipt.status {
            waiting.claim.fingerprint = *ask.fingerprint();
        }
    })
}

/// What was asked is compared once there is an outcome, not before.
pub(super) fn fingerprint_ignored_while_running(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Held(held) = &mut receipt.status {
            held.claim.fingerprint = *ask.fingerprint();
        }
    })
}

/// What was asked is compared while it is running, and never again.
pub(super) fn fingerprint_ignored_once_done(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Done(done) = &mut receipt.status {
            done.claim.fingerprint = *ask.fingerprint();
        }
    })
}

/// A lease counts as over when half of it is left.
pub(super) fn takes_over_early(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| match (&receipt.status, receipt.due) {
        (Status::Held(_), Due::In(left)) if left < ask.policy().lease() / 2 => {
            receipt.due = Due::Over(Duration::ZERO);
        }
        _ => {}
    })
}

/// What waits after an unknown outcome is run by everybody who asks.
pub(super) fn repeats_for_an_asker_under_hold(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Waiting(waiting) = &mut receipt.status {
            waiting.prior = Prior::Nothing;
        }
    })
}

/// A lease that is over keeps everybody out all the same.
pub(super) fn never_takes_over(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Held(_) = receipt.status {
            receipt.due = Due::In(Duration::from_millis(5));
        }
    })
}

/// A lease that ended is run again, although owner and asker said never to.
pub(super) fn takes_over_under_hold(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::OutcomeUnknown), Some(Status::Held(_))) => Decision::Run(Takeover::Lapsed),
        (decision, _) => decision,
    }
}

/// Only the asker's contract counts, not the one that the work was begun under.
pub(super) fn forgets_the_owners_contract(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Held(held) = &mut receipt.status {
            held.on_unknown = OnUnknown::Retry;
        }
    })
}

/// Only the contract that the work was begun under counts, not the asker's.
pub(super) fn forgets_the_askers_contract(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (
            Decision::Refuse(Refusal::OutcomeUnknown),
            Some(Status::Held(Held { on_unknown: OnUnknown::Retry, .. })),
        ) => Decision::Run(Takeover::Lapsed),
        (decision, _) => decision,
    }
}

/// Work whose outcome is unknown is run again.
pub(super) fn runs_after_unknown(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::OutcomeUnknown), Some(Status::Unknown(_))) => {
            Decision::Run(Takeover::Lapsed)
        }
        (decision, _) => decision,
    }
}

/// An outcome is given out for as long as its record is stored.
pub(super) fn replays_past_retention(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| {
        if let Status::Done(_) = receipt.status {
            receipt.due = Due::Never;
        }
    })
}

/// A key past its retention is run again where the contract refuses it.
pub(super) fn runs_an_expired_key(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::KeyExpired), Some(Status::Done(_))) => Decision::Run(Takeover::Expired),
        (decision, _) => decision,
    }
}

/// A tombstone keeps nobody out.
pub(super) fn runs_past_a_tombstone(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::KeyExpired), Some(Status::Gone(_))) => Decision::Run(Takeover::Expired),
        (decision, _) => decision,
    }
}

/// A key past its retention is refused where the contract calls it a new intent.
pub(super) fn refuses_a_new_intent(ask: &Ask, found: Option<&Receipt>) -> Decision {
    let refuses = ask.policy().on_expired() == OnExpired::Run && is_over(found);
    match decide(ask, found) {
        Decision::Run(Takeover::Expired) if refuses => Decision::Refuse(Refusal::KeyExpired),
        decision => decision,
    }
}

/// What is done is run again.
pub(super) fn runs_what_is_done(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match decide(ask, found) {
        Decision::Replay => Decision::Run(Takeover::Expired),
        decision => decision,
    }
}

/// What is done without a kept answer is run again, to have an answer.
pub(super) fn runs_what_has_no_answer(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match decide(ask, found) {
        Decision::Refuse(Refusal::ResponseNotStored { .. }) => Decision::Run(Takeover::Expired),
        decision => decision,
    }
}

/// A failure that was recorded is run again.
pub(super) fn retries_every_failure(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.and_then(|receipt| receipt.status.outcome())) {
        (Decision::Replay, Some(outcome)) if outcome.verdict() == onceward::Verdict::Failed => {
            Decision::Run(Takeover::Expired)
        }
        (decision, _) => decision,
    }
}

/// What is dead is run again when somebody asks for it.
pub(super) fn runs_what_is_dead(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::Dead { .. }), Some(Status::Dead(_))) => Decision::Run(Takeover::Waiting),
        (decision, _) => decision,
    }
}

/// The tries of what lapsed are never used up.
pub(super) fn never_gives_up(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::Dead { .. }), Some(Status::Held(_))) => Decision::Run(Takeover::Lapsed),
        (decision, _) => decision,
    }
}

/// What was closed is run for those who ask.
pub(super) fn runs_what_is_closed(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match decide(ask, found) {
        Decision::Refuse(Refusal::Closed(_)) => Decision::Run(Takeover::Expired),
        decision => decision,
    }
}

/// A step past its retention is run again although its intent continues.
pub(super) fn runs_an_expired_step(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Replay, Some(Status::Done(_))) if ask.id().is_step() && is_over(found) => {
            Decision::Run(Takeover::Expired)
        }
        (decision, _) => decision,
    }
}

/// A claim whose answer was lost is taken for somebody else's.
pub(super) fn own_claim_not_recognised(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| receipt.due), ask.policy().on_duplicate()) {
        (Decision::Run(Takeover::Own), _, OnDuplicate::Wait(at_most)) => Decision::Wait { at_most },
        (Decision::Run(Takeover::Own), Some(Due::In(retry_after)), OnDuplicate::Conflict) => {
            Decision::Refuse(Refusal::InProgress { retry_after })
        }
        (decision, ..) => decision,
    }
}

/// Everybody's claim is taken for one's own.
pub(super) fn every_claim_is_own(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match decide(ask, found) {
        Decision::Wait { .. } | Decision::Refuse(Refusal::InProgress { .. }) => Decision::Run(Takeover::Own),
        decision => decision,
    }
}
