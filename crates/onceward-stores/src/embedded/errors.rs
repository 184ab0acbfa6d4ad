//! Errors of fjall and the disk, translated into errors that an operator can act on.

use std::borrow::Cow;
use std::io;

use fjall::LsmError;
use onceward::{Error, ErrorKind};

pub(crate) fn io(detail: impl Into<Cow<'static, str>>, error: io::Error) -> Error {
    Error::new(io_kind(&error), detail).caused_by(error)
}

pub(crate) fn engine(detail: impl Into<Cow<'static, str>>, error: fjall::Error) -> Error {
    Error::new(engine_kind(&error), detail).caused_by(error)
}

fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::Full
        }
        _ => ErrorKind::Unavailable,
    }
}

fn engine_kind(error: &fjall::Error) -> ErrorKind {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => io_kind(error),
        fjall::Error::Locked => ErrorKind::InUse,
        fjall::Error::Poisoned | fjall::Error::KeyspaceDeleted => ErrorKind::Unavailable,
        fjall::Error::InvalidVersion(_) => ErrorKind::Foreign,
        _ => ErrorKind::Damaged,
    }
}
