//! Broken rules: each stands in for [`onceward::decide`] and is wrong in one cell of its table. Most ask
//! the right rules about a receipt that is not quite the one that was found.

use std::time::Duration;

use onceward::receipt::{Held, Status};
use onceward::{
    Ask, Decision, Due, OnDuplicate, OnExpired, OnUnknown, Receipt, Refusal, Snapshot, Takeover, decide,
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

/// What was asked is not compared at all.
pub(super) fn fingerprint_ignored(ask: &Ask, found: Option<&Receipt>) -> Decision {
    decide_about(ask, found, |receipt| match &mut receipt.status {
        Status::Held(held) => held.claim.fingerprint = *ask.fingerprint(),
        Status::Done(done) => done.claim.fingerprint = *ask.fingerprint(),
        Status::Unknown(unknown) => unknown.claim.fingerprint = *ask.fingerprint(),
        Status::Gone(_) => {}
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
        (Status::Held(_), Due::In(left)) if left < ask.policy().lease_duration() / 2 => {
            receipt.due = Due::Over(Duration::ZERO);
        }
        _ => {}
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

/// An outcome in doubt is run again.
pub(super) fn runs_after_unknown(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Refuse(Refusal::OutcomeUnknown), Some(Status::Unknown(_))) => {
            Decision::Run(Takeover::Lapsed)
        }
        (decision, _) => decision,
    }
}

/// An outcome is given out for as long as it happens to lie there.
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
    let refuses = ask.policy().expired_rule() == OnExpired::Run && is_over(found);
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

/// A failure is run again where the contract says that it is the answer.
pub(super) fn retries_every_failure(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Replay, Some(Status::Done(done)))
            if done.outcome.verdict() == onceward::Verdict::Failed =>
        {
            Decision::Run(Takeover::Failed)
        }
        (decision, _) => decision,
    }
}

/// A failure is given out where the contract says to try again.
pub(super) fn replays_every_failure(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| &receipt.status)) {
        (Decision::Run(Takeover::Failed), Some(Status::Done(done))) => match done.outcome.snapshot() {
            Snapshot::Kept(_) => Decision::Replay,
            Snapshot::Omitted(note) => Decision::Refuse(Refusal::ResponseNotStored {
                verdict: done.outcome.verdict(),
                note: note.clone(),
            }),
        },
        (decision, _) => decision,
    }
}

/// A claim whose answer was lost is taken for somebody else's.
pub(super) fn own_claim_not_recognised(ask: &Ask, found: Option<&Receipt>) -> Decision {
    match (decide(ask, found), found.map(|receipt| receipt.due), ask.policy().duplicate_rule()) {
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
