//! Errors of PostgreSQL: their kind, what to do, and whether a write may have happened.

use deadpool_postgres::{HookError, PoolError};
use onceward::{Error, ErrorKind};
use tokio_postgres::error::{Severity, SqlState};

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Reads,
    Writes,
}

/// A statement failed.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
pub(crate) fn failed(call: Call, error: tokio_postgres::Error) -> Error {
    // After an ordinary error the statement is undone. A fatal one may have hit a commit that waited for a standby.
    let refused =
        error.as_db_error().is_some_and(|said| matches!(said.parsed_severity(), Some(Severity::Error)));
    let fault = explain(&error);
    if call == Call::Writes && !refused { fault.maybe_applied() } else { fault }
}

/// There is no connection; nothing was sent.
pub(super) fn unconnected(server: &str, error: &PoolError) -> Error {
    // "db error" is all that the driver's own text says of what the server answered.
    let said = match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => said(error),
        error => error.to_string(),
    };
    let detail =
        format!("no connection to {server}; is it reachable, and are there enough connections? {said}");
    Error::new(ErrorKind::Unavailable, detail)
}

/// What the server said, without its detail, which may show what is stored; or why it said nothing.
fn said(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn explain(error: &tokio_postgres::Error) -> Error {
    let (kind, detail) = match error.code() {
        None => (ErrorKind::Unavailable, "the connection to PostgreSQL failed"),
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Invalid,
            "this user lacks a right; it needs SELECT, INSERT, UPDATE and DELETE on the tables onceward_*, and CREATE for migrations",
        ),
        Some(code) if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN].contains(code) => (
            ErrorKind::Foreign,
            "the tables for messages are missing or are not those of onceward; FlowTables::open makes them",
        ),
        Some(code) if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code) => {
            (ErrorKind::Full, "PostgreSQL has no room left")
        }
        Some(_) => (ErrorKind::Unavailable, "PostgreSQL refused a statement"),
    };
    Error::new(kind, format!("{detail}: {}", said(error)))
}
