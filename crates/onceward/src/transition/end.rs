//! How a run ends, and what its owner can still write after it has lost a compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Write, clean_note};
use crate::id::Id;
use crate::outcome::{Effect, Outcome, Stopped, Verdict};
use crate::policy::{KeepInput, OnExpired, OnFailure, OnUnknown, Policy, Retention};
use crate::receipt::{
    Claim, Dead, Done, End, Held, Job, Owner, Prior, Receipt, Status, Unknown, UnknownReason, Waiting,
};
use crate::store::Version;

/// How a run ends.
#[derive(Clone, Debug)]
pub enum Finish {
    /// With an outcome to keep.
    Done(Outcome),
    /// Without one, and certainly without effect. Why.
    Release(String),
    /// It is unknown whether it had its effect. Why.
    Unknown(UnknownReason, String),
    /// It continues later, after this long: the try does not count.
    Suspend(Duration),
}

impl Finish {
    /// Of work that came to an outcome: kept, unless it is a failure that may be tried again.
    pub fn of(outcome: Outcome, policy: &Policy) -> Self {
        if Self::frees_key(&outcome, policy) {
            return Self::Release("it failed, and its policy retries failures".into());
        }
        Self::Done(outcome)
    }

    /// Returns whether a run with this outcome frees its key: its policy retries failures.
    pub fn frees_key(outcome: &Outcome, policy: &Policy) -> bool {
        (outcome.verdict(), policy.on_failure()) == (Verdict::Failed, OnFailure::Retry)
    }

    /// Of work that stopped without an outcome.
    pub fn of_stopped(stopped: &Stopped) -> Self {
        if let Some(pause) = stopped.suspended() {
            return Self::Suspend(pause);
        }
        match stopped.effect() {
            Effect::None => Self::Release(stopped.to_string()),
            Effect::Maybe => Self::Unknown(UnknownReason::Reported, stopped.to_string()),
        }
    }

    /// Returns whether the key is free to run again by the end of it, as far as its owner can tell.
    pub fn is_release(&self) -> bool {
        matches!(self, Self::Release(_))
    }
}

/// Returns the receipt after the end of a run; `None` removes it.
pub fn end(id: &Id, held: &Held, ending: &Finish, policy: &Policy) -> Option<Write> {
    let rule = match (held.on_unknown, policy.on_unknown()) {
        (OnUnknown::Retry, OnUnknown::Retry) => OnUnknown::Retry,
        _ => OnUnknown::Hold,
    };
    let unknown = |reason: UnknownReason, note: &str| {
        let job = held.job.as_ref().map(|job| ended(job, note));
        let (claim, prior, late_effect_max) = (held.claim, held.prior, held.late_effect_max);
        let note = if job.is_some() { String::new() } else { clean_note(note) };
        let unknown = Unknown { claim, reason, prior, late_effect_max, note, job };
        Some(Write::new(Status::Unknown(unknown), None))
    };
    match (ending, rule) {
        (Finish::Done(outcome), _) => Some(done(id, held, outcome.clone(), policy)),
        (Finish::Unknown(reason, note), OnUnknown::Hold) => unknown(*reason, note),
        // Dropped with the one who ran it, as a worker that is stopped: no fault of the work, so the try does not count.
        (Finish::Unknown(UnknownReason::Dropped, note), OnUnknown::Retry) if let Some(job) = &held.job => {
            let pause = policy.backoff().after(job.started);
            let status = waiting(held, Prior::Unknown, Some(uncounted(job, note)));
            Some(Write::new(status, Some(pause)))
        }
        (Finish::Unknown(_, note), OnUnknown::Retry) => again(held, Prior::Unknown, note, policy),
        // Where a first run would release, one that took over an unknown outcome makes it unknown again.
        (Finish::Release(note), OnUnknown::Hold) if held.prior == Prior::Unknown => {
            unknown(UnknownReason::Reported, note)
        }
        (Finish::Release(note), _) => again(held, held.prior, note, policy),
        (Finish::Suspend(pause), _) => match &held.job {
            Some(job) => {
                let status = waiting(held, held.prior, Some(uncounted(job, "")));
                Some(Write::new(status, Some(*pause)))
            }
            None => again(held, held.prior, "", policy),
        },
    }
}

/// What `look` makes of the receipt after the end of a run, as [`end`] gives it. An outcome may be large, and is not copied:
/// the ending lends it to the receipt.
pub(crate) fn look_at_end<T>(
    id: &Id,
    held: &Held,
    ending: &mut Finish,
    policy: &Policy,
    look: impl FnOnce(Option<&Write>) -> T,
) -> T {
    let Finish::Done(outcome) = ending else {
        return look(end(id, held, ending, policy).as_ref());
    };
    let write = done(id, held, std::mem::replace(outcome, Outcome::succeeded(Bytes::new())), policy);
    let looked = look(Some(&write));
    let Status::Done(Done { end: End::Outcome(lent), .. }) = write.status else {
        unreachable!("an outcome is done")
    };
    *outcome = lent;
    looked
}

/// A done status under a policy, and when its retention ends.
pub(super) fn done(id: &Id, held: &Held, outcome: Outcome, policy: &Policy) -> Write {
    let due_in = policy.retention_of(&outcome).duration();
    let job = kept_job(held.job.as_ref(), policy).map(|job| ended(job, ""));
    let done = Done { claim: held.claim, end: End::Outcome(outcome), tombstone: tombstone(id, policy), job };
    Write::new(Status::Done(done), due_in)
}

/// The job that is kept with the outcome.
fn kept_job<'a>(job: Option<&'a Arc<Job>>, policy: &Policy) -> Option<&'a Arc<Job>> {
    job.filter(|_| policy.keep_input() == KeepInput::WithReceipt)
}

/// Bytes of the input that is kept with the outcome.
pub fn kept_input_bytes(job: Option<&Arc<Job>>, policy: &Policy) -> usize {
    kept_job(job, policy).map_or(0, |job| job.input.len())
}

/// A step has none: it goes with its parent.
pub(super) fn tombstone(id: &Id, policy: &Policy) -> Option<Retention> {
    match policy.on_expired() {
        OnExpired::Refuse(keep) if !id.is_step() => Some(keep),
        _ => None,
    }
}

fn ended(job: &Job, note: &str) -> Arc<Job> {
    let finished = job.finished.saturating_add(1).min(job.started);
    let note = if note.is_empty() { job.note.clone() } else { clean_note(note) };
    Arc::new(Job { finished, note, ..job.clone() })
}

/// The job of a try that ends and does not count.
fn uncounted(job: &Job, note: &str) -> Arc<Job> {
    let note = if note.is_empty() { job.note.clone() } else { clean_note(note) };
    Arc::new(Job { started: job.started.saturating_sub(1), note, ..job.clone() })
}

/// What is to be tried again: later, if it carries its input; by the next ask, if it does not.
fn again(held: &Held, prior: Prior, note: &str, policy: &Policy) -> Option<Write> {
    match (&held.job, prior) {
        (Some(job), _) if job.started >= policy.tries_max() => Some(dead(held, prior, &ended(job, note))),
        (Some(job), _) => {
            let pause = policy.backoff().after(job.started);
            Some(Write::new(waiting(held, prior, Some(ended(job, note))), Some(pause)))
        }
        (None, Prior::Nothing) => None,
        // What is known of earlier runs is kept for the next one, and goes like a failure.
        (None, _) => {
            let due_in = policy.retention(Verdict::Failed).duration();
            Some(Write::new(waiting(held, prior, None), due_in))
        }
    }
}

/// What a run leaves that is to be tried again.
pub(super) fn waiting(run: &Held, prior: Prior, job: Option<Arc<Job>>) -> Status {
    Status::Waiting(Waiting { claim: run.claim, prior, late_effect_max: late_after(run, prior), job })
}

/// How long what a run has sent can still take effect, if nobody can tell whether it did.
fn late_after(run: &Held, prior: Prior) -> Duration {
    if prior == Prior::Unknown { run.late_effect_max } else { Duration::ZERO }
}

/// Under `Retry` an unknown outcome does not prevent another try, but it is not forgotten: what undoes the intent has to
/// know of it.
pub(super) fn dead(run: &Held, prior: Prior, job: &Arc<Job>) -> Write {
    let prior = match (run.on_unknown, prior) {
        (OnUnknown::Retry, Prior::Settled) => Prior::Nothing,
        (_, prior) => prior,
    };
    let dead = Dead {
        claim: run.claim,
        prior,
        on_unknown: run.on_unknown,
        late_effect_max: late_after(run, prior),
        note: String::new(),
        job: Some(job.clone()),
    };
    Write::new(Status::Dead(dead), None)
}

/// How the owner continues after losing a compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Still the owner's, under this version: write again.
    WriteAgain(Version),
    /// An earlier write of the owner's did happen.
    Recorded,
    /// Another owner has the receipt, or it was settled.
    FencedOff,
}

/// The end that the last owner reports is accepted until the intent is claimed again or settled.
pub fn after_loss(
    id: &Id,
    run: &Held,
    ending: &Finish,
    policy: &Policy,
    found: Option<&Receipt>,
) -> AfterLoss {
    let Some(receipt) = found else {
        // Gone, by an earlier try of ours or without us: all that a removal wants.
        let removes = end(id, run, ending, policy).is_none();
        return if removes { AfterLoss::Recorded } else { AfterLoss::FencedOff };
    };
    if !receipt.status.is_of(&run.claim) {
        return AfterLoss::FencedOff;
    }
    match (&receipt.status, ending) {
        // A renewal of ours moved the version on.
        (Status::Held(_), _) => AfterLoss::WriteAgain(receipt.version),
        // (Another outcome would be a settlement, which is kept and given to every ask.)
        (Status::Done(Done { end: End::Outcome(there), .. }), Finish::Done(outcome)) if there == outcome => {
            AfterLoss::Recorded
        }
        (Status::Done(_) | Status::Gone(_), _) => AfterLoss::FencedOff,
        // The outcome of our run became unknown after its lease ended, or by a write of ours. The owner of the
        // work can replace it with a known end, but not with another unknown one.
        (Status::Unknown(_), Finish::Unknown(..)) => AfterLoss::Recorded,
        (Status::Unknown(_), _) => AfterLoss::WriteAgain(receipt.version),
        // An outcome counts for more than a try that was to be made; all else is there already.
        (Status::Waiting(_) | Status::Dead(_), Finish::Done(_)) => AfterLoss::WriteAgain(receipt.version),
        (Status::Waiting(_) | Status::Dead(_), _) => AfterLoss::Recorded,
    }
}

/// Returns whether the outcome that a run reached contradicts what somebody has settled about that run meanwhile.
///
/// A settlement as done is kept: it was the answer to others. One as not done is replaced by the outcome for as long as
/// no run has begun because of it ([`after_loss`]): otherwise the next ask would have the effect a second time.
pub fn is_settled_otherwise(run: &Claim, ending: &Finish, found: &Receipt) -> bool {
    let Finish::Done(outcome) = ending else { return false };
    let own = found.status.is_of(run);
    match &found.status {
        Status::Done(Done { end: End::Outcome(there), .. }) => own && there != outcome,
        Status::Done(Done { end: End::Closed(_), .. }) => own,
        Status::Waiting(Waiting { prior, .. }) | Status::Dead(Dead { prior, .. }) => {
            own && *prior == Prior::Settled
        }
        // Another run has begun since, because of it.
        Status::Held(Held { prior, .. }) => !own && *prior == Prior::Settled,
        Status::Unknown(_) | Status::Gone(_) => false,
    }
}

/// The run of a receipt, as far as a late end from its owner needs it. `None` if it is over.
pub fn run_of(status: &Status) -> Option<Held> {
    let (claim, on_unknown, prior, late_effect_max) = match status {
        Status::Held(held) => return Some(held.clone()),
        Status::Unknown(unknown) => (unknown.claim, OnUnknown::Hold, unknown.prior, unknown.late_effect_max),
        Status::Waiting(waiting) => (waiting.claim, OnUnknown::Retry, waiting.prior, waiting.late_effect_max),
        Status::Dead(dead) => (dead.claim, OnUnknown::Retry, dead.prior, dead.late_effect_max),
        Status::Done(_) | Status::Gone(_) => return None,
    };
    let job = status.job().cloned();
    Some(Held { claim, on_unknown, owner: Owner::Run, prior, late_effect_max, job })
}
