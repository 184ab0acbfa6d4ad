//! The answer to an ask: an outcome or a refusal.

use std::time::Duration;

use crate::decide::Refusal;
use crate::outcome::Outcome;
use crate::receipt::{Done, End, Fence, Receipt, Status};
use crate::store::Due;

/// The answer to an ask. A refusal is an answer too; [`Answer::into_result`] makes it an error for callers
/// that use `?`.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is an outcome: of this very call, or recorded.
    Completed(Completed),
    /// There is none to give.
    Refused(Refusal),
}

/// An outcome, and how it came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed {
    /// The outcome of the work.
    pub outcome: Outcome,
    /// Whether it comes from a receipt, and not from work done for this call.
    pub replayed: bool,
    /// The fence of the run that produced it.
    pub fence: Fence,
    /// Whether the receipt is in the store. [`Recorded::NotYet`] means: the effect happened, the store could not
    /// be reached, and the receipt is still being written in the background.
    pub recorded: Recorded,
    /// How long a retry will still get this outcome; `None` if forever, or not at all (see `recorded`
    /// and [`OnFailure::Retry`](crate::OnFailure)).
    pub expires_in: Option<Duration>,
}

/// Whether the receipt of a finished run is in the store.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is.
    Yes,
    /// Not yet, and perhaps never.
    NotYet,
    /// It is not meant to be: the failure may be tried again.
    Released,
}

impl Answer {
    /// The outcome, or the refusal as an error.
    pub fn into_result(self) -> Result<Completed, Refusal> {
        match self {
            Self::Completed(completed) => Ok(completed),
            Self::Refused(refusal) => Err(refusal),
        }
    }

    /// The replay of a done receipt.
    pub(crate) fn replay(receipt: Receipt) -> Self {
        let Status::Done(Done { claim, end: End::Outcome(outcome), .. }) = receipt.status else {
            unreachable!("only recorded outcomes are replayed")
        };
        let expires_in = match receipt.due {
            Due::In(remaining) => Some(remaining),
            Due::Never | Due::Over(_) => None,
        };
        Self::Completed(Completed {
            outcome,
            replayed: true,
            fence: claim.fence,
            recorded: Recorded::Yes,
            expires_in,
        })
    }
}
