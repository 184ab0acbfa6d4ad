//! Decides from the result of one try whether to retry, wait or stop: one pure function.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header::CONTENT_TYPE};

use onceward_http::problem::Problem;

/// What makes it safe to send a request a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its method: `GET`, `HEAD`, `OPTIONS`, `TRACE` change nothing.
    Safe,
    /// Its key.
    Keyed,
    /// Nothing: only a try that was certainly not sent may be repeated.
    Bare,
}

impl Guard {
    /// The guard of a request with this method, with or without a key.
    pub fn of(method: &Method, keyed: bool) -> Self {
        if keyed {
            Self::Keyed
        } else if method.is_safe() {
            Self::Safe
        } else {
            Self::Bare
        }
    }
}

/// Whether a try that failed may have reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// Certainly not: there was no connection to send it on.
    No,
    /// It may have.
    Maybe,
}

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// A complete answer arrived.
    Answered {
        /// Its status.
        status: StatusCode,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
        /// What it says about the key.
        said: Said,
    },
    /// No answer arrived.
    Failed(Departed),
    /// This client cannot send the request, so another try would fail too. Nothing was sent.
    Impossible,
}

/// What an answer says about the key, beyond its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// An earlier request with this key is still running.
    InProgress,
    /// The server does not know whether an earlier request with this key took effect.
    OutcomeUnknown,
    /// The key is past its retention.
    KeyExpired,
    /// The same request must not be sent again as it is.
    NotRetryable,
}

impl Said {
    /// Whether the body must be read to know what an answer says about the key.
    pub fn is_in_the_body(headers: &HeaderMap) -> bool {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = value.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/problem+json")
    }

    /// Reads a problem (RFC 9457). Anything else is [`Said::Nothing`].
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        if !Self::is_in_the_body(headers) {
            return Self::Nothing;
        }
        let Ok(problem) = serde_json::from_slice::<serde_json::Value>(body) else { return Self::Nothing };
        let name = problem["type"].as_str().and_then(|name| name.strip_prefix("urn:onceward:problem:"));
        let is = |problem: Problem| name == Some(problem.name());
        if is(Problem::InProgress { retry_after: Duration::ZERO }) {
            Self::InProgress
        } else if is(Problem::OutcomeUnknown { retry_after: None }) {
            // The server may be reconciling the outcome: it then marks the problem as retryable.
            if problem["retryable"] == true { Self::InProgress } else { Self::OutcomeUnknown }
        } else if is(Problem::KeyExpired) {
            Self::KeyExpired
        } else if problem["retryable"] == false {
            Self::NotRetryable
        } else {
            Self::Nothing
        }
    }
}

/// What the result of a try means for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The call ends with this answer or this failure.
    Final,
    /// The same request may be sent again.
    Again,
    /// An earlier request with this key is still running. Ask again for its answer.
    Wait,
    /// The outcome is unknown; it may be settled on the server.
    Unknown,
    /// The outcome is unknown and stays so: the server no longer knows the key.
    Expired,
}

/// Decides what the result of one try means. Rules, in order: what the server says about the key, then the status.
pub fn judge(guard: Guard, tried: &Tried) -> Judged {
    let (status, said) = match *tried {
        Tried::Impossible => return Judged::Final,
        Tried::Failed(Departed::No) => return Judged::Again,
        Tried::Failed(Departed::Maybe) if guard == Guard::Bare => return Judged::Final,
        Tried::Failed(Departed::Maybe) => return Judged::Again,
        Tried::Answered { status, said, .. } => (status, said),
    };
    match said {
        Said::InProgress => return Judged::Wait,
        Said::OutcomeUnknown => return Judged::Unknown,
        Said::KeyExpired => return Judged::Expired,
        Said::NotRetryable => return Judged::Final,
        Said::Nothing => {}
    }
    let transient = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    match guard {
        Guard::Bare => Judged::Final,
        Guard::Safe | Guard::Keyed if transient => Judged::Again,
        Guard::Safe | Guard::Keyed => Judged::Final,
    }
}

impl Tried {
    /// Whether the circuit breaker counts this as a success. A 4xx is one; a missing answer and a 5xx are not.
    pub fn went_well(&self) -> bool {
        match self {
            Self::Answered { status, .. } => !status.is_server_error(),
            Self::Failed(_) => false,
            Self::Impossible => true,
        }
    }
}

#[cfg(test)]
#[path = "retry_decision_test.rs"]
mod tests;
