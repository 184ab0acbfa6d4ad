//! What becomes of receipts with time: leases and retentions that are over, unknown outcomes that nobody settles.

use std::sync::Arc;
use std::time::Duration;

use super::end::dead;
use super::{Write, clean_note};
use crate::id::Id;
use crate::policy::OnUnknown;
use crate::receipt::{Dead, Done, Gone, Held, Job, Prior, Receipt, Status, Unknown, UnknownReason};
use crate::store::{Due, Found, State};

/// Returns the receipt after an expired lease that no run may take over. `None` if it is not held.
pub fn lapse(found: &Receipt) -> Option<Write> {
    let Status::Held(held) = &found.status else { return None };
    let unknown = Unknown {
        claim: held.claim,
        reason: UnknownReason::LeaseEnded,
        prior: held.prior,
        late_effect_max: held.late_effect_max,
        note: String::new(),
        job: held.job.clone(),
    };
    Some(Write::new(Status::Unknown(unknown), None))
}

/// Returns the receipt after an expired lease that was the last try. `None` if it is not held, or carries
/// no input.
pub fn exhaust(found: &Receipt) -> Option<Write> {
    let Status::Held(held) = &found.status else { return None };
    let job = held.job.as_ref()?;
    let job = Arc::new(Job { note: lapsed_note(job), ..Job::clone(job) });
    Some(dead(held, Prior::Unknown, &job))
}

fn lapsed_note(job: &Job) -> String {
    let died = job.started - job.finished.min(job.started);
    let note =
        format!("{died} of {} tries ended without a word: the process died or lost touch", job.started);
    if job.note.is_empty() { note } else { clean_note(&format!("{note}; before that: {}", job.note)) }
}

/// The treatment of a record that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It goes if its parent has gone: a step is kept at least as long as the intent it belongs to.
    RemoveWithParent,
    /// It becomes this.
    Become(Write),
}

/// Returns the treatment of a receipt whose due time has come. Nothing that carries an input is removed before it is
/// done, and unknown outcomes and dead letters never expire. `abandoned_after` is how long a lapsed claim that
/// nobody asked for again is remembered.
pub fn expire(id: &Id, found: &Receipt, abandoned_after: Duration) -> Expiry {
    let Due::Over(ago) = found.due else { return Expiry::Keep };
    let remove = if id.is_step() { Expiry::RemoveWithParent } else { Expiry::Remove };
    match &found.status {
        Status::Done(Done { tombstone: Some(keep), claim, .. }) => {
            Expiry::Become(Write::new(Status::Gone(Gone { fence: claim.fence }), keep.duration()))
        }
        Status::Done(_) | Status::Gone(_) => remove,
        Status::Held(Held { on_unknown: OnUnknown::Hold, .. }) => {
            Expiry::Become(lapse(found).expect("it is held"))
        }
        // The next ask takes it over, and meanwhile its fingerprint still guards the key.
        Status::Held(held) if held.job.is_some() || ago < abandoned_after => Expiry::Keep,
        Status::Held(_) => remove,
        Status::Waiting(waiting) if waiting.job.is_some() => Expiry::Keep,
        Status::Waiting(_) => remove,
        Status::Unknown(_) | Status::Dead(_) => Expiry::Keep,
    }
}

/// Returns whether a step past its own retention was recorded by the runs whose receipt this is, past its retention
/// too, and not by one that has claimed the intent since. Versions come from one clock, and an intent is completed
/// after its steps.
pub fn is_of_former_run(step: &Found, expired: &Receipt) -> bool {
    step.state == State::Done && step.due.is_over() && step.version < expired.version
}

/// Returns the receipt of an unknown outcome that was not settled for `after`: dead, and still unknown. `None` if it is
/// not unknown, or not for that long.
pub fn give_up_unknown(found: &Receipt, after: Duration) -> Option<Write> {
    let Status::Unknown(unknown) = &found.status else { return None };
    if found.age.updated < after.max(unknown.late_effect_max) {
        return None;
    }
    let before = found.status.note();
    let note = format!("it was not settled within {after:?}; it may have taken effect");
    let note = if before.is_empty() { note } else { clean_note(&format!("{note}; before that: {before}")) };
    let (note, job) = match &unknown.job {
        Some(job) => (String::new(), Some(Arc::new(Job { note, ..Job::clone(job) }))),
        None => (note, None),
    };
    let dead = Dead {
        claim: unknown.claim,
        prior: Prior::Unknown,
        on_unknown: OnUnknown::Hold,
        // Its time is over.
        late_effect_max: Duration::ZERO,
        note,
        job,
    };
    Some(Write::new(Status::Dead(dead), None))
}
