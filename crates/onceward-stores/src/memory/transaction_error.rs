//! Errors of memory transactions, and which of them are worth a retry.

use std::fmt;

use onceward::{Error, ErrorKind, Fault};

/// Why a call in a transaction failed.
pub(crate) enum TransactionError {
    /// It waited too long for a lock.
    TimedOut,
    /// It was rolled back to break a deadlock.
    Undone,
    /// It has already ended.
    Over,
}

/// Marks, as its cause, an error after which the same transaction can be retried.
#[derive(Debug)]
pub(crate) struct Undone;

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it may be tried again")
    }
}

impl std::error::Error for Undone {}

impl TransactionError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::TimedOut => {
                let detail = "another transaction has what this one wants to write, and did not end in time";
                Error::new(ErrorKind::Unavailable, detail).caused_by(Undone)
            }
            Self::Undone => {
                let detail = "two transactions waited for each other, and this one was undone";
                Error::new(ErrorKind::Conflict, detail).caused_by(Undone)
            }
            Self::Over => over(),
        }
    }

    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::TimedOut => Fault::Busy,
            Self::Undone => Fault::Undone(self.into_error()),
            Self::Over => Fault::Failed(self.into_error()),
        }
    }
}

pub(crate) fn over() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction is over; begin another one")
}
