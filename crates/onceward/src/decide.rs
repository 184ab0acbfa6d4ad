//! Decides what happens to an ask, in one pure function: given the ask and the receipt that was found, run, wait,
//! replay or refuse. Wherever the receipt was found (store, cache, a run in this process), the answer comes
//! from here. What is then written comes from `transition.rs`.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::ask::Ask;
use crate::outcome::{Snapshot, Verdict};
use crate::policy::{OnDuplicate, OnExpired, OnUnknown};
use crate::receipt::{Closed, Done, End, Prior, Receipt, Status};
use crate::store::Due;

/// The decision about an ask, given what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Claim it (or continue with the claim that is already ours) and do the work.
    Run(Takeover),
    /// Another run is in progress: wait for its outcome, at most this long.
    Wait {
        /// The bound that the policy of the ask sets.
        at_most: Duration,
    },
    /// It is done: give the recorded outcome.
    Replay,
    /// Say no.
    Refuse(Refusal),
}

/// The claim that a run takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// None: there is no receipt.
    Absent,
    /// Our own: this very attempt has claimed it already, only the answer was lost.
    Own,
    /// No run at the moment: the intent waits to be run.
    Waiting,
    /// A claim of this process whose work never began, and which must be released.
    Owed,
    /// A previous owner whose lease ended.
    Lapsed,
    /// A receipt past its retention.
    Expired,
}

impl Takeover {
    /// Whether there was a receipt that another claim, or none, has made.
    pub(crate) fn is_of_another(self) -> bool {
        !matches!(self, Self::Absent | Self::Own)
    }
}

/// Why an ask is refused. An answer, not an error; it can serve as one for callers that use `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The same key was used for something else.
    KeyReused,
    /// The first one is still running.
    InProgress {
        /// When it makes sense to come back: what remains of the runner's lease.
        retry_after: Duration,
    },
    /// The effect may or may not have happened; it must be settled.
    OutcomeUnknown,
    /// It was tried as often as its policy allows; an operator must look at it.
    Dead {
        /// Why the last try did not work.
        note: String,
    },
    /// It was closed, and will not be run.
    Closed(Closed),
    /// It is done, but its answer was not kept.
    ResponseNotStored {
        /// Whether it succeeded.
        verdict: Verdict,
        /// What the work noted about the answer.
        note: Bytes,
    },
    /// The key is past its retention.
    KeyExpired,
}

/// Decides. `found` is the receipt at this moment, or `None` if there is none.
pub fn decide(ask: &Ask, found: Option<&Receipt>) -> Decision {
    let Some(receipt) = found else { return Decision::Run(Takeover::Absent) };
    let over = receipt.due.is_over();
    let policy = &ask.policy;

    // A receipt past its retention binds nobody any more, so its fingerprint does not either. A step that is
    // there counts, whatever its due time says: it is kept for as long as its parent.
    match (&receipt.status, policy.on_expired()) {
        (Status::Gone(_), _) if over => return Decision::Run(Takeover::Expired),
        (Status::Gone(_), OnExpired::Run) => return Decision::Run(Takeover::Expired),
        (Status::Gone(_), OnExpired::Refuse(_)) => return Decision::Refuse(Refusal::KeyExpired),
        (Status::Done(_), _) if over && ask.id.is_step() => {}
        (Status::Done(_), OnExpired::Run) if over => return Decision::Run(Takeover::Expired),
        (Status::Done(_), OnExpired::Refuse(_)) if over => return Decision::Refuse(Refusal::KeyExpired),
        _ => {}
    }
    // Whatever is asked under a closed key, it is not run.
    if let Status::Done(Done { end: End::Closed(closed), .. }) = &receipt.status {
        return Decision::Refuse(Refusal::Closed(*closed));
    }
    if receipt.status.claim().is_some_and(|claim| !ask.is_described_by(&claim.fingerprint)) {
        return Decision::Refuse(Refusal::KeyReused);
    }
    match &receipt.status {
        // One of its runs may have had its effect. That it may be repeated was the policy of that run; the policy of
        // the ask must allow it too.
        Status::Waiting(waiting)
            if waiting.prior == Prior::Unknown && policy.on_unknown() == OnUnknown::Hold =>
        {
            Decision::Refuse(Refusal::OutcomeUnknown)
        }
        Status::Waiting(_) => Decision::Run(Takeover::Waiting),
        Status::Held(held) if !over && ask.attempt == Some(held.claim.attempt) => {
            Decision::Run(Takeover::Own)
        }
        Status::Held(_) if !over => match policy.on_duplicate() {
            OnDuplicate::Wait(at_most) => Decision::Wait { at_most },
            OnDuplicate::Conflict => Decision::Refuse(Refusal::in_progress(receipt.due)),
        },
        // The policies of both the owner and the ask must allow a second run.
        Status::Held(held) => match (held.on_unknown, policy.on_unknown(), &held.job) {
            (OnUnknown::Retry, OnUnknown::Retry, Some(job)) if job.started >= policy.tries_max() => {
                Decision::Refuse(Refusal::dead(&job.note))
            }
            (OnUnknown::Retry, OnUnknown::Retry, _) => Decision::Run(Takeover::Lapsed),
            _ => Decision::Refuse(Refusal::OutcomeUnknown),
        },
        // A failure that was recorded is final, whatever the policy of the ask says of failures now.
        Status::Done(Done { end: End::Outcome(outcome), .. }) => match outcome.snapshot() {
            Snapshot::Omitted(note) => Decision::Refuse(Refusal::ResponseNotStored {
                verdict: outcome.verdict(),
                note: note.clone(),
            }),
            Snapshot::Kept(_) => Decision::Replay,
        },
        Status::Unknown(_) => Decision::Refuse(Refusal::OutcomeUnknown),
        Status::Dead(_) => Decision::Refuse(Refusal::dead(receipt.status.note())),
        Status::Done(_) | Status::Gone(_) => unreachable!("closed and gone receipts were decided above"),
    }
}

impl Refusal {
    /// In progress, with what remains of the runner's lease as the hint.
    pub(crate) fn in_progress(due: Due) -> Self {
        let retry_after = match due {
            Due::In(remaining) => remaining,
            Due::Over(_) | Due::Never => Duration::ZERO,
        };
        Self::InProgress { retry_after }
    }

    fn dead(note: &str) -> Self {
        Self::Dead { note: note.to_owned() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyReused => {
                f.write_str("this key was already used for a different request; use a new key")
            }
            Self::InProgress { retry_after } => {
                write!(f, "the first request with this key is still running; try again in {retry_after:?}")
            }
            Self::OutcomeUnknown => f.write_str(
                "whether the first request with this key took effect is unknown; it is held until settled",
            ),
            Self::Dead { note } if note.is_empty() => {
                f.write_str("this was tried as often as allowed and is given up until an operator retries it")
            }
            Self::Dead { note } => write!(
                f,
                "this was tried as often as allowed and is given up until an operator retries it; the last try: {note}"
            ),
            Self::Closed(Closed::Cancelled) => f.write_str("this was cancelled and will not be run"),
            Self::Closed(Closed::Discarded) => {
                f.write_str("this was given up and discarded; it will not be run")
            }
            Self::Closed(Closed::Undone) => {
                f.write_str("this was undone before it began; it will not be run")
            }
            Self::ResponseNotStored { .. } => {
                f.write_str("the request with this key is done, but its answer was not kept")
            }
            Self::KeyExpired => f.write_str("this key is past its retention; use a new key"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
#[path = "decide_test.rs"]
mod tests;
