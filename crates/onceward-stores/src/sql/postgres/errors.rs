//! Translates errors of PostgreSQL and of the connection: their kind, what to do, and whether the write may have
//! happened.

use deadpool_postgres::{HookError, PoolError};
use onceward::{Error, ErrorKind};
use tokio_postgres::error::{Severity, SqlState};

use crate::sql::error_text::{Explained, root, unreached};

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Reads,
    Writes,
}

/// Whether the same statement may simply be tried again: the server rolled it back in favour of another transaction.
pub(super) fn is_worth_repeating(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(is_undone)
}

/// Whether the server rolled something back in favour of another transaction.
pub(in crate::sql) fn is_undone(code: &SqlState) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(code)
}

/// A statement failed.
pub(super) fn failed(call: CallEffect, error: tokio_postgres::Error) -> Error {
    let said_no = error.as_db_error().is_some_and(|error| {
        // After an ordinary error the statement is undone. A fatal one may have hit a connection that
        // was waiting for a standby, with its commit on disk.
        matches!(error.parsed_severity(), Some(Severity::Error))
    });
    let (kind, detail) = explain(error.code());
    let fault = Error::new(kind, detail).caused_by(explained(error));
    if call == CallEffect::Writes && !said_no { fault.maybe_applied() } else { fault }
}

/// There is no connection to `server`; nothing was sent.
pub(super) fn unconnected(server: &str, error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            let (kind, detail) = match error.code() {
                None => (ErrorKind::Unavailable, unreached(server, &error)),
                code => {
                    let (kind, detail) = explain(code);
                    (kind, format!("{server}: {detail}"))
                }
            };
            Error::new(kind, detail).caused_by(explained(error))
        }
        PoolError::Timeout(_) => Error::new(
            ErrorKind::Unavailable,
            format!(
                "no connection to {server} within the time limit; is it reachable, and are there enough connections?"
            ),
        ),
        error => Error::new(ErrorKind::Unavailable, format!("no connection to {server}")).caused_by(error),
    }
}

/// The message of the server without its detail, which may show what is stored; or why there is none.
fn explained(error: tokio_postgres::Error) -> Explained<tokio_postgres::Error> {
    let text = match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => root(&error).to_string(),
    };
    Explained::new(text, error)
}

/// No answer in time. The statement may still be running.
pub(super) fn timed_out(call: CallEffect, after: std::time::Duration) -> Error {
    let fault = Error::new(ErrorKind::Unavailable, format!("PostgreSQL did not answer within {after:?}"));
    if call == CallEffect::Writes { fault.maybe_applied() } else { fault }
}

/// The meaning of an error code, and advice for the operator; without a code, the connection is lost.
pub(in crate::sql) fn explain(code: Option<&SqlState>) -> (ErrorKind, &'static str) {
    let Some(code) = code else {
        return (ErrorKind::Unavailable, "the connection to PostgreSQL failed");
    };
    if *code == SqlState::INVALID_CATALOG_NAME {
        (ErrorKind::Invalid, "there is no such database; create it, or correct the address")
    } else if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
        (
            ErrorKind::Invalid,
            "PostgreSQL does not let this user in; correct the user or the password in the address",
        )
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        (
            ErrorKind::Invalid,
            "this user lacks a right; it needs SELECT, INSERT, UPDATE and DELETE on onceward_receipts, and CREATE for migrations",
        )
    } else if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN, SqlState::DATATYPE_MISMATCH]
        .contains(code)
    {
        (
            ErrorKind::Foreign,
            "the tables are not those of onceward; run `onceward migrate`, or use another database",
        )
    } else if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code) {
        (ErrorKind::Full, "PostgreSQL has no room left")
    } else if [SqlState::TOO_MANY_CONNECTIONS, SqlState::CONFIGURATION_LIMIT_EXCEEDED].contains(code) {
        (
            ErrorKind::Unavailable,
            "PostgreSQL has no connection left; raise max_connections, or give onceward fewer",
        )
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        (ErrorKind::Unavailable, "this PostgreSQL only reads; the address must lead to the primary")
    } else if *code == SqlState::QUERY_CANCELED {
        (ErrorKind::Unavailable, "PostgreSQL stopped a statement that took too long")
    } else {
        (ErrorKind::Unavailable, "PostgreSQL refused a statement")
    }
}
