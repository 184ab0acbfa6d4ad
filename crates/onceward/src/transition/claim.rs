//! How an intent begins: enqueued, and claimed by a run.

use std::sync::Arc;
use std::time::Duration;

use super::Write;
use super::end::run_of;
use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Refusal, Takeover};
use crate::fingerprint::Fingerprint;
use crate::policy::Policy;
use crate::receipt::{Attempt, Claim, Held, Job, Owner, Prior, Receipt, Status, Waiting};
use crate::store::State;

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

pub(super) fn unclaimed(fingerprint: Fingerprint) -> Claim {
    Claim { fingerprint, attempt: Attempt::NONE, fence: FENCE_IS_VERSION, tries: 0 }
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
