//! Computes the next status of a receipt for each event, in pure functions. Everything that
//! changes a receipt (runs, transactions, tickets, workers, settlements, sweeps) takes its next status from
//! here, and only decides how it is written.
//!
//! ```text
//!   enqueue             claim                      end: done
//! absent ──▶ WAITING ──────────▶ HELD ──────────────────────────▶ DONE ── expire ─▶ GONE ── expire ─▶ absent
//!    │          ▲                 │ ▲ renew                         ▲
//!    └─ claim ──┼────────────────▶│ └─ claim (takeover)             │ settle done, cancel, discard, close
//!               │ end: release,   │                                 │
//!               │ with a job or   ├─ end: unknown, expire ▶ UNKNOWN ┴─ settle not done ─▶ WAITING
//!               │ prior unknown   │
//!               └─────────────────┼─ end, tries used up ──▶ DEAD ── retry ─▶ WAITING
//!                                 └─ end: release, nothing to keep ──▶ absent
//! ```
//!
//! An erasure (`erase.rs`) removes what a receipt says and leaves it in its state.

mod erase;

use std::sync::Arc;
use std::time::Duration;

pub use erase::{Erase, Erasure, erase, erase_step};

use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Error, ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::{Effect, NOTE_BYTES_MAX, Outcome, Stopped, Verdict};
use crate::policy::{KeepInput, OnExpired, OnFailure, OnUnknown, Policy, Retention};
use crate::receipt::{
    Attempt, Claim, Closed, Dead, Done, End, Gone, Held, Job, Owner, Prior, Receipt, Status, Unknown,
    UnknownReason, Waiting,
};
use crate::store::{Due, Found, State, Version};

/// The record that a transition writes in place of the one that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The new status.
    pub status: Status,
    /// When it falls due; `None` for never.
    pub due_in: Option<Duration>,
}

impl Write {
    fn new(status: Status, due_in: Option<Duration>) -> Self {
        Self { status, due_in }
    }
}

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
        match (outcome.verdict(), policy.on_failure()) {
            (Verdict::Failed, OnFailure::Retry) => {
                Self::Release("it failed, and its policy retries failures".into())
            }
            _ => Self::Done(outcome),
        }
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

/// The claim of an ask on what was found, as `decide` has allowed it.
pub fn claim(ask: &Ask, attempt: Attempt, owner: Owner, takeover: Takeover, found: Option<&Receipt>) -> Held {
    let found = found.map(|receipt| &receipt.status);
    let policy = &ask.policy;
    // Of the claims before it. What one of them has sent may still take effect.
    let (mut tries, mut late) = (0, Duration::ZERO);
    let (fence, prior, job) = match (takeover, found) {
        // It was counted when it was claimed.
        (Takeover::Own, Some(Status::Held(held))) => {
            (tries, late) = (held.claim.tries.saturating_sub(1), held.late_effect_max);
            (held.claim.fence, held.prior, held.job.clone())
        }
        (Takeover::Waiting, Some(Status::Waiting(waiting))) => {
            (tries, late) = (waiting.claim.tries, waiting.late_effect_max);
            (FENCE_IS_VERSION, waiting.prior, begun(waiting.job.as_ref(), ask))
        }
        // It was counted, and never began.
        (Takeover::Owed, Some(status)) => {
            let run = run_of(status);
            let prior = run.as_ref().map_or(Prior::Nothing, |run| run.prior);
            tries = run.as_ref().map_or(0, |run| run.claim.tries.saturating_sub(1));
            late = run.filter(|_| prior == Prior::Unknown).map_or(late, |run| run.late_effect_max);
            (FENCE_IS_VERSION, prior, status.job().cloned().or_else(|| begun(None, ask)))
        }
        (Takeover::Lapsed, Some(Status::Held(held))) => {
            (tries, late) = (held.claim.tries, held.late_effect_max);
            (FENCE_IS_VERSION, Prior::Unknown, begun(held.job.as_ref(), ask))
        }
        _ => (FENCE_IS_VERSION, Prior::Nothing, begun(None, ask)),
    };
    Held {
        claim: Claim { fingerprint: ask.fingerprint, attempt, fence, tries: tries.saturating_add(1) },
        on_unknown: policy.on_unknown(),
        owner,
        prior,
        late_effect_max: policy.late_effect_max().max(late),
        job,
    }
}

/// The job of a try that begins: the one that is kept, or else that of the ask.
fn begun(kept: Option<&Arc<Job>>, ask: &Ask) -> Option<Arc<Job>> {
    let job = match kept {
        Some(job) => Job::clone(job),
        None => Job::new(ask.input.clone()?),
    };
    Some(Arc::new(Job { started: job.started.saturating_add(1), ..job }))
}

/// A claim, for as long as a lease.
pub fn hold(held: Held, policy: &Policy) -> Write {
    Write::new(Status::Held(held), Some(policy.lease()))
}

/// A done status under a policy, and when its retention ends.
fn done(id: &Id, held: &Held, outcome: Outcome, policy: &Policy) -> Write {
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
fn tombstone(id: &Id, policy: &Policy) -> Option<Retention> {
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
fn waiting(run: &Held, prior: Prior, job: Option<Arc<Job>>) -> Status {
    Status::Waiting(Waiting { claim: run.claim, prior, late_effect_max: late_after(run, prior), job })
}

/// How long what a run has sent can still take effect, if nobody can tell whether it did.
fn late_after(run: &Held, prior: Prior) -> Duration {
    if prior == Prior::Unknown { run.late_effect_max } else { Duration::ZERO }
}

/// Under `Retry` an unknown outcome does not prevent another try, but it is not forgotten: what undoes the intent has to
/// know of it.
fn dead(run: &Held, prior: Prior, job: &Arc<Job>) -> Write {
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

/// The write that enqueues an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It is to be written.
    Write(Write),
    /// It is there already.
    AlreadyThere(State),
    /// The key is taken or past its retention.
    Refused(Refusal),
}

/// Returns the write that enqueues an ask; `decision` is what `decide` says about it and what was found.
pub fn enqueue(ask: &Ask, decision: &Decision, found: Option<&Receipt>) -> Enqueue {
    let there = found.map(|found| &found.status);
    let (claim, prior, late_effect_max) = match (decision, there) {
        (Decision::Refuse(refusal @ (Refusal::KeyReused | Refusal::KeyExpired)), _) => {
            return Enqueue::Refused(refusal.clone());
        }
        (Decision::Run(Takeover::Absent | Takeover::Expired), _) | (_, None) => {
            (unclaimed(ask.fingerprint), Prior::Nothing, Duration::ZERO)
        }
        // Nobody had left anything to do: now there is.
        (_, Some(Status::Waiting(Waiting { claim, prior, late_effect_max, job: None }))) => {
            (*claim, *prior, *late_effect_max)
        }
        (_, Some(there)) => return Enqueue::AlreadyThere(there.state()),
    };
    let job = Job::new(ask.input.clone().unwrap_or_default());
    let waiting = Waiting { claim, prior, late_effect_max, job: Some(Arc::new(job)) };
    Enqueue::Write(Write::new(Status::Waiting(waiting), Some(ask.delay)))
}

fn unclaimed(fingerprint: Fingerprint) -> Claim {
    Claim { fingerprint, attempt: Attempt::NOBODY, fence: FENCE_IS_VERSION, tries: 0 }
}

/// Returns the receipt of a delayed intent that is due now. `None` if it does not wait, or not for a worker.
pub fn start_now(found: &Receipt) -> Option<Write> {
    match &found.status {
        Status::Waiting(Waiting { job: Some(_), .. }) if !found.due.is_over() => {
            Some(Write::new(found.status.clone(), Some(Duration::ZERO)))
        }
        _ => None,
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

/// A note as it may be stored: one line, without control characters, cut at [`NOTE_BYTES_MAX`].
pub(crate) fn clean_note(note: &str) -> String {
    let mut clean: String =
        note.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let mut end = NOTE_BYTES_MAX.min(clean.len());
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    clean.truncate(end);
    clean
}

#[cfg(test)]
#[path = "transition_test.rs"]
mod tests;
