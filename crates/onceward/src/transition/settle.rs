//! What is decided from outside: settlements, closing, retries of dead intents.

use std::sync::Arc;
use std::time::Duration;

use super::Write;
use super::claim::unclaimed;
use super::end::{done, run_of, tombstone, waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::{Outcome, Verdict};
use crate::policy::{OnUnknown, Policy};
use crate::receipt::{Closed, Dead, Done, End, Job, Prior, Receipt, Status, Unknown, UnknownReason, Waiting};
use crate::store::Due;

/// The settlement of an unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// It happened, and this was its outcome.
    Done(Outcome),
    /// It did not happen; it may run again. Refused while what was sent can still take effect
    /// ([`Policy::late_effect_max`]).
    NotDone,
    /// It did not happen and will not, also where what was sent could still take effect.
    ForceNotDone,
}

/// What waits to be run again after an unknown outcome, and is asked for under a policy that holds such outcomes:
/// unknown, so that it can be settled. `None` for everything else.
pub fn hold_unknown(found: &Receipt, policy: &Policy) -> Option<Write> {
    let Status::Waiting(Waiting { claim, prior: Prior::Unknown, late_effect_max, job }) = &found.status
    else {
        return None;
    };
    let unknown = Unknown {
        claim: *claim,
        reason: UnknownReason::Reported,
        prior: Prior::Unknown,
        late_effect_max: policy.late_effect_max().max(*late_effect_max),
        note: String::new(),
        job: job.clone(),
    };
    Some(Write::new(Status::Unknown(unknown), None))
}

/// Returns the settled receipt of one whose outcome is unknown (also if it waits to be run again), or that is dead.
/// `Ok(None)` if it is neither.
pub fn settle(id: &Id, found: &Receipt, settlement: &Settlement, policy: &Policy) -> Result<Option<Write>> {
    let held_unknown = hold_unknown(found, policy);
    let status = held_unknown.as_ref().map_or(&found.status, |write| &write.status);
    let unknown_for = match (status, found.due) {
        // A dead one became unknown when it was written, at the latest.
        (Status::Unknown(_) | Status::Dead(_), _) => found.age.updated,
        // Nobody has asked since the lease ended, so the receipt does not say unknown yet.
        (Status::Held(_), Due::Over(ago)) => ago,
        (Status::Held(_), _) => {
            let detail = "this run still has its lease; only an unknown outcome can be settled";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        _ => return Ok(None),
    };
    let run = run_of(status).expect("held, unknown and dead receipts have a run");
    match settlement {
        Settlement::Done(outcome) => Ok(Some(done(id, &run, outcome.clone(), policy))),
        Settlement::NotDone if unknown_for < run.late_effect_max => {
            let left = run.late_effect_max.saturating_sub(unknown_for);
            let detail = format!(
                "what was sent may still take effect for {left:?}; settle it after that, or force it if it is certain"
            );
            Err(Error::new(ErrorKind::Conflict, detail))
        }
        Settlement::NotDone | Settlement::ForceNotDone => Ok(Some(match &run.job {
            Some(job) => {
                let job = Job { started: 0, finished: 0, ..Job::clone(job) };
                Write::new(waiting(&run, Prior::Settled, Some(Arc::new(job))), Some(Duration::ZERO))
            }
            None => {
                let due_in = policy.retention(Verdict::Failed).duration();
                Write::new(waiting(&run, Prior::Settled, None), due_in)
            }
        })),
    }
}

/// Closes an intent that is waiting or dead. `Ok(None)` if there is nothing left to close: it is done.
///
/// As [`Closed::Undone`] only if no try of it can have taken effect: the caller who undoes it then leaves out what would undo that
/// effect. A dead intent of a previous version may have taken effect even if its receipt does not name an unknown
/// outcome.
pub fn close(id: &Id, found: Option<&Receipt>, why: Closed, policy: &Policy) -> Result<Option<Write>> {
    let claim = match found.map(|found| &found.status) {
        Some(Status::Waiting(Waiting { prior: Prior::Unknown, .. }) | Status::Dead(_))
            if why == Closed::Undone =>
        {
            let detail = "one of its tries may have taken effect; settle it first";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        // Nothing was asked yet; whatever comes late is refused, so no fingerprint is needed.
        None | Some(Status::Gone(_)) => unclaimed(Fingerprint::new(0, [0; Fingerprint::DIGEST_BYTES])),
        Some(Status::Waiting(Waiting { claim, .. }) | Status::Dead(Dead { claim, .. })) => *claim,
        Some(Status::Done(_)) => return Ok(None),
        Some(Status::Held(_)) => {
            let detail = "it is running; only what is waiting or dead can be closed";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        Some(Status::Unknown(_)) => {
            let detail = "whether it took effect is unknown; settle it first";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
    };
    let keep = |verdict| policy.retention(verdict).duration();
    // As long as either kind of outcome would have been honoured.
    let due_in = match (keep(Verdict::Succeeded), keep(Verdict::Failed)) {
        (Some(succeeded), Some(failed)) => Some(succeeded.max(failed)),
        _ => None,
    };
    let done = Done { claim, end: End::Closed(why), tombstone: tombstone(id, policy), job: None };
    Ok(Some(Write::new(Status::Done(done), due_in)))
}

/// Returns whether an unknown outcome may be forgotten, with its input, because it did not happen: the same key is then
/// a new intent. Refused for everything else, and while what was sent can still take effect.
pub fn forget_unknown(found: &Receipt) -> Result<()> {
    let Status::Unknown(unknown) = &found.status else {
        let detail = "only an unknown outcome can be forgotten";
        return Err(Error::new(ErrorKind::Conflict, detail));
    };
    let left = unknown.late_effect_max.saturating_sub(found.age.updated);
    if left.is_zero() {
        return Ok(());
    }
    let detail = format!("what was sent may still take effect for {left:?}; forget it after that");
    Err(Error::new(ErrorKind::Conflict, detail))
}

/// Retries a dead intent, from the first try on. `Ok(None)` if it is not dead.
pub fn retry(found: &Receipt) -> Result<Option<Write>> {
    let Status::Dead(Dead { claim, prior, on_unknown, late_effect_max, job, .. }) = &found.status else {
        return Ok(None);
    };
    if *prior == Prior::Unknown && *on_unknown == OnUnknown::Hold {
        let detail = "one of its tries may have taken effect; settle it as not done before it is tried again";
        return Err(Error::new(ErrorKind::Conflict, detail));
    }
    let (job, due_in) = match job {
        Some(job) => {
            let job = Job { started: 0, finished: 0, ..Job::clone(job) };
            (Some(Arc::new(job)), Duration::ZERO)
        }
        // Only the asks have what is to be done.
        None => (None, ASKED_AGAIN_WITHIN),
    };
    let waiting = Waiting { claim: *claim, prior: *prior, late_effect_max: *late_effect_max, job };
    Ok(Some(Write::new(Status::Waiting(waiting), Some(due_in))))
}

/// How long what is known of earlier runs is kept for the next ask, where no policy says it.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_hours(24);
