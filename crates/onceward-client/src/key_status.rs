//! Reads from an answer what the server says about the key: in a problem (RFC 9457), or in the fields that mark an
//! answer as recorded.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use onceward_http::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, ONCEWARD_RECORDED};

/// What an answer says about the key, beyond its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// Nothing.
    NotStated,
    /// This answer is the recorded outcome of the request. Every retry with this key gets it too.
    Recorded,
    /// An earlier request with this key is still running, or its outcome is being determined.
    InProgress,
    /// The server does not know whether an earlier request with this key took effect.
    OutcomeUnknown,
    /// The server has given the request up after its own tries. An operator can retry it there.
    Dead,
    /// The key is past its retention.
    Expired,
    /// The request did not run, and may be sent again.
    NotRun,
    /// The request may be sent again; whether it ran is not said.
    Retryable,
    /// The same request must not be sent again as it is.
    NotRetryable,
}

/// The type of Onceward's problems, without their names.
const PROBLEM: &str = "urn:onceward:problem:";

impl KeyStatus {
    /// Returns whether the body must be read to know what an answer says about the key.
    pub fn needs_body(headers: &HeaderMap) -> bool {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = value.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/problem+json")
    }

    /// Reads an answer. A replay is final whatever it contains; then a problem counts, then the fields.
    pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        if is_replay(headers) {
            return Self::Recorded;
        }
        match problem(headers, body) {
            Some(problem) => of_problem(&problem),
            // What would be sent again otherwise is the outcome of the request if the server keeps it.
            None if is_kept(headers) && (status.is_server_error() || is_about_credentials(status)) => {
                Self::Recorded
            }
            None => Self::NotStated,
        }
    }
}

/// Whether a status is about the credentials only: the request was refused before it ran, and its key is free.
pub(crate) fn is_about_credentials(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED
    )
}

/// Whether the server marked this answer as one from its receipt.
pub(crate) fn is_replay(headers: &HeaderMap) -> bool {
    headers.get(IDEMPOTENT_REPLAYED).is_some_and(|value| value == "true")
}

/// Whether the server has this answer, but had not stored it durably when it sent it.
pub(crate) fn is_not_yet_recorded(headers: &HeaderMap) -> bool {
    headers.get(ONCEWARD_RECORDED).is_some_and(|value| value == "not-yet")
}

/// Whether the server keeps this answer for the key, or is about to.
pub(crate) fn is_kept(headers: &HeaderMap) -> bool {
    headers.contains_key(IDEMPOTENCY_EXPIRES) || is_not_yet_recorded(headers)
}

/// A request that is done and whose answer cannot be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoneWithoutAnswer {
    /// The status of the answer, if that is known.
    pub(crate) status: Option<StatusCode>,
}

/// Whether the server says that the request is done and that it did not store its answer.
pub(crate) fn not_stored(headers: &HeaderMap, body: &[u8]) -> Option<DoneWithoutAnswer> {
    let problem = problem(headers, body)?;
    (name_of(&problem) == Some("response-not-stored")).then(|| {
        let status = problem["original_status"].as_u64().and_then(|status| u16::try_from(status).ok());
        DoneWithoutAnswer { status: status.and_then(|status| StatusCode::from_u16(status).ok()) }
    })
}

/// Whether an intent stays open in the journal although this is the answer to its call: it was not accepted with
/// these credentials, and may be with others; or it was given up on the server, where an operator can retry it.
pub(crate) fn stays_open(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> bool {
    match KeyStatus::read(status, headers, body) {
        KeyStatus::Dead => true,
        KeyStatus::NotStated => is_about_credentials(status),
        KeyStatus::NotRetryable => {
            problem(headers, body).is_some_and(|problem| name_of(&problem) == Some("scope-missing"))
        }
        _ => false,
    }
}

fn problem(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    if !KeyStatus::needs_body(headers) {
        return None;
    }
    serde_json::from_slice::<Value>(body).ok().filter(Value::is_object)
}

fn name_of(problem: &Value) -> Option<&str> {
    problem["type"].as_str().and_then(|name| name.strip_prefix(PROBLEM))
}

/// What a problem means for the key. The names are those of [`onceward_http::problem::Problem`]; a test compares them.
fn of_problem(problem: &Value) -> KeyStatus {
    let retryable = problem["retryable"].as_bool();
    match name_of(problem) {
        Some("in-progress") => KeyStatus::InProgress,
        // The server may be reconciling the outcome: it then marks the problem as retryable.
        Some("outcome-unknown") if retryable == Some(true) => KeyStatus::InProgress,
        Some("outcome-unknown") => KeyStatus::OutcomeUnknown,
        Some("key-expired") => KeyStatus::Expired,
        Some("dead") => KeyStatus::Dead,
        Some("closed") => KeyStatus::NotRetryable,
        Some("overloaded" | "quota-exceeded" | "upstream-unreachable") => KeyStatus::NotRun,
        // A route may give a problem another status; its type says more.
        Some(_) if retryable == Some(true) => KeyStatus::Retryable,
        // Of any vendor.
        _ if retryable == Some(false) => KeyStatus::NotRetryable,
        _ => KeyStatus::NotStated,
    }
}

#[cfg(test)]
#[path = "key_status_test.rs"]
mod tests;
