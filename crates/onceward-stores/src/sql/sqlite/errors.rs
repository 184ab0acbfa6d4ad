//! Translates errors of SQLite: their kind, and what to do.

use std::path::Path;

use onceward::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// A statement failed, and with it the transaction: nothing was changed.
#[doc(hidden)]
pub fn failed(error: rusqlite::Error) -> Error {
    let (kind, detail) = explain(error.sqlite_error_code());
    Error::new(kind, detail).caused_by(error)
}

/// A file could not be opened; nothing was changed.
pub(super) fn unopened(path: &Path, error: rusqlite::Error) -> Error {
    let (kind, detail) = explain(error.sqlite_error_code());
    Error::new(kind, format!("SQLite file {}: {detail}", path.display())).caused_by(error)
}

/// The meaning of an error code, and advice for the operator.
pub(in crate::sql) fn explain(code: Option<ErrorCode>) -> (ErrorKind, &'static str) {
    match code {
        Some(ErrorCode::NotADatabase) => (ErrorKind::Foreign, "the file is not an SQLite database"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "another connection keeps the SQLite file locked for too long")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Full, "there is no room left for the SQLite file"),
        Some(ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Damaged, "the SQLite file is damaged; restore it from a copy")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => (
            ErrorKind::Invalid,
            "the SQLite file cannot be opened for writing; check the path and the rights",
        ),
        _ => (ErrorKind::Unavailable, "SQLite refused a statement"),
    }
}

/// Whether the file is locked by another connection.
pub(in crate::sql) fn is_busy(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A commit failed. What was written may be found again when the file is next opened.
#[doc(hidden)]
pub fn uncommitted(error: rusqlite::Error) -> Error {
    let busy = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    if busy { failed(error) } else { failed(error).maybe_applied() }
}
