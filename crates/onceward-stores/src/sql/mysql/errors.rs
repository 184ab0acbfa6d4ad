//! Translates errors of MySQL and of the connection: their kind, what to do, and whether the write may have happened.

use mysql_async::Error as Cause;
use onceward::{Error, ErrorKind};

use crate::sql::error_text::{Explained, root, unreached};

/// The error code for a lock wait that timed out.
pub(in crate::sql) const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Reads,
    Writes,
}

/// Whether the same may simply be tried again: the server rolled it back in favour of another transaction.
pub(super) fn is_worth_repeating(error: &Cause) -> bool {
    code(error).is_some_and(is_undone)
}

/// Whether the server rolled something back in favour of another transaction.
pub(in crate::sql) fn is_undone(code: u16) -> bool {
    [1213, 1020].contains(&code)
}

fn code(error: &Cause) -> Option<u16> {
    match error {
        Cause::Server(error) => Some(error.code),
        _ => None,
    }
}

/// A statement failed. One that the server refused is undone with its transaction.
pub(super) fn failed(call: CallEffect, error: Cause) -> Error {
    let said_no = matches!(error, Cause::Server(_));
    let (kind, detail) = explain(code(&error));
    let fault = Error::new(kind, detail).caused_by(explained(error));
    if call == CallEffect::Writes && !said_no { fault.maybe_applied() } else { fault }
}

/// The same for the other crates of this project.
#[doc(hidden)]
pub fn call_failed(writes: bool, error: Cause) -> Error {
    failed(if writes { CallEffect::Writes } else { CallEffect::Reads }, error)
}

/// There is no connection to `server`; nothing was sent.
#[doc(hidden)]
pub fn unconnected(server: &str, error: Cause) -> Error {
    let (kind, detail) = match code(&error) {
        None => (ErrorKind::Unavailable, unreached(server, &error)),
        code => {
            let (kind, detail) = explain(code);
            (kind, format!("{server}: {detail}"))
        }
    };
    Error::new(kind, detail).caused_by(explained(error))
}

/// No connection to `server` in time.
pub(super) fn unconnected_within(server: &str, after: std::time::Duration) -> Error {
    let detail = format!(
        "no connection to {server} within {after:?}; is it reachable, and are there enough connections?"
    );
    Error::new(ErrorKind::Unavailable, detail)
}

/// The message of the server, or why there is none.
fn explained(error: Cause) -> Explained<Cause> {
    let text = match &error {
        Cause::Server(said) => said.message.clone(),
        error => root(error).to_string(),
    };
    Explained::new(text, error)
}

/// A commit failed. What the server says to it may be about a connection that was waiting for a replica, with
/// its commit on disk.
pub(super) fn uncommitted(error: Cause) -> Error {
    failed(CallEffect::Writes, error).maybe_applied()
}

/// No answer in time. The statement may still be running.
pub(super) fn timed_out(call: CallEffect, after: std::time::Duration) -> Error {
    let fault =
        Error::new(ErrorKind::Unavailable, format!("the MySQL server did not answer within {after:?}"));
    if call == CallEffect::Writes { fault.maybe_applied() } else { fault }
}

/// The meaning of an error code, and advice for the operator; without a code, the connection is lost.
pub(in crate::sql) fn explain(code: Option<u16>) -> (ErrorKind, &'static str) {
    let Some(code) = code else {
        return (ErrorKind::Unavailable, "the connection to the MySQL server failed");
    };
    match code {
        1049 => (ErrorKind::Invalid, "there is no such database; create it, or correct the address"),
        1046 => (
            ErrorKind::Invalid,
            "the address names no database; it ends in one, as in mysql://user@host/database",
        ),
        1044 | 1045 | 1698 => {
            (ErrorKind::Invalid, "the MySQL server does not let this user in; correct the address")
        }
        1142 | 1143 | 1227 => (
            ErrorKind::Invalid,
            "this user lacks a right; it needs SELECT, INSERT, UPDATE and DELETE on the tables onceward_*, and CREATE for migrations",
        ),
        1146 | 1054 => (
            ErrorKind::Foreign,
            "the tables are not those of onceward; run `onceward migrate`, or use another database",
        ),
        1021 | 1114 => (ErrorKind::Full, "the MySQL server has no room left"),
        1040 | 1203 | 1226 => (
            ErrorKind::Unavailable,
            "the MySQL server has no connection left; raise max_connections, or give onceward fewer",
        ),
        1290 | 1792 | 1836 => {
            (ErrorKind::Unavailable, "this MySQL server only reads; the address must lead to the primary")
        }
        _ => (ErrorKind::Unavailable, "the MySQL server refused a statement"),
    }
}
