//! The error type of this crate and of every store.
//!
//! A refusal (`key reused`, `in progress`, …) is never an error: it is an answer, see
//! [`Refusal`](crate::Refusal). An error means that something failed, and it always says whether the
//! write it was about may have happened all the same.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The kind of a failure, by who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller handed in something that is out of bounds or contradictory.
    Invalid,
    /// A bound of this process was reached (see [`Limits`](crate::Limits)); come back later.
    Overloaded,
    /// The store cannot be reached or did not answer in time.
    Unavailable,
    /// The store has no room left.
    Full,
    /// Stored bytes are not what was written, or were written by a newer version.
    Damaged,
    /// The place is in use by another process.
    InUse,
    /// The place belongs to something else, or to a newer format.
    Foreign,
    /// The store does not keep what the record of truth must keep (see [`Caps`](crate::Caps)).
    Unfit,
    /// The lease was lost while the work ran, and there is no other run's outcome to give instead.
    LeaseLost,
    /// The work ended without an outcome (see [`Stopped`](crate::Stopped)).
    Stopped,
    /// The receipt is not in a state that allows this.
    Conflict,
}

/// Whether a failed write may have taken effect all the same.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Certainly not: nothing was changed.
    No,
    /// Perhaps: only looking at the store can tell.
    Maybe,
}

/// Whether the receipt of the intent had been seen when the failure came.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PriorReceipt {
    /// Nothing is known of the intent: as far as this process can tell, it is asked for the first time.
    NotSeen,
    /// There was one: the intent ran before, or is running now.
    Seen,
}

/// A failure. Its `Display` is one line that an operator can act on.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    applied: Applied,
    prior_receipt: PriorReceipt,
    detail: Cow<'static, str>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure that changed nothing. `detail` says what went wrong and what to do.
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            applied: Applied::No,
            prior_receipt: PriorReceipt::NotSeen,
            detail: detail.into(),
            cause: None,
        }
    }

    /// Says that the write may have happened although it failed.
    pub fn maybe_applied(mut self) -> Self {
        self.applied = Applied::Maybe;
        self
    }

    /// Adds the underlying failure.
    pub fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(Arc::from(cause.into()));
        self
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the write may have happened all the same.
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// Returns whether a receipt of the intent had been seen by then. A caller who would rather act unguarded than
    /// not at all when the store is down must not do so if there was one.
    pub fn prior_receipt(&self) -> PriorReceipt {
        self.prior_receipt
    }

    pub(crate) fn after_receipt_seen(mut self) -> Self {
        self.prior_receipt = PriorReceipt::Seen;
        self
    }

    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, detail)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        if self.applied == Applied::Maybe {
            f.write_str(" (the write may have happened)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
