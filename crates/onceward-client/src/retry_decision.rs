//! Decides from the result of one try whether to retry, wait or stop: one pure function.

use std::time::Duration;

use http::{Method, StatusCode};

use super::key_status::{KeyStatus, is_about_credentials};

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
pub enum Sent {
    /// Certainly not: there was no connection to send it on.
    No,
    /// It may have.
    Maybe,
}

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryResult {
    /// A complete answer arrived.
    Answered {
        /// Its status.
        status: StatusCode,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
        /// What it says about the key.
        key_status: KeyStatus,
    },
    /// No answer arrived.
    Failed(Sent),
    /// This client cannot send the request, so another try would fail too. Nothing was sent.
    Impossible,
}

/// What the result of a try means for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call ends with this answer or this failure.
    Final,
    /// The same request may be sent again.
    Retry,
    /// An earlier request with this key is still running. Ask again for its answer.
    Wait,
    /// The outcome is unknown; it may be settled on the server.
    Unknown,
    /// The outcome is unknown and stays so: the server no longer knows the key.
    Expired,
}

/// Decides what the result of one try means. Rules, in order: whether it may be sent again at all, what the server
/// says about the key, then the status.
pub fn decide(guard: Guard, tried: &TryResult) -> Decision {
    let (status, key_status) = match *tried {
        TryResult::Impossible => return Decision::Final,
        TryResult::Failed(Sent::No) => return Decision::Retry,
        TryResult::Failed(Sent::Maybe) if guard == Guard::Bare => return Decision::Final,
        TryResult::Failed(Sent::Maybe) => return Decision::Retry,
        TryResult::Answered { .. } if guard == Guard::Bare => return Decision::Final,
        TryResult::Answered { status, key_status, .. } => (status, key_status),
    };
    match key_status {
        KeyStatus::Recorded | KeyStatus::NotRetryable | KeyStatus::Dead => Decision::Final,
        KeyStatus::InProgress => Decision::Wait,
        KeyStatus::OutcomeUnknown => Decision::Unknown,
        KeyStatus::Expired => Decision::Expired,
        KeyStatus::NotRun | KeyStatus::Retryable => Decision::Retry,
        KeyStatus::NotStated if is_transient(status) => Decision::Retry,
        KeyStatus::NotStated => Decision::Final,
    }
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

impl TryResult {
    /// Returns whether the circuit breaker counts this as a success. A missing answer and a 5xx are failures of the
    /// host; a 4xx is not, and neither is an answer that the server has recorded: it is the outcome of the request.
    pub fn went_well(&self) -> bool {
        match self {
            Self::Answered { key_status: KeyStatus::Recorded, .. } => true,
            Self::Answered { status, .. } => !status.is_server_error(),
            Self::Failed(_) => false,
            Self::Impossible => true,
        }
    }

    /// Returns whether the request may have run because of this try.
    pub fn may_have_run(&self) -> Sent {
        match *self {
            Self::Impossible | Self::Failed(Sent::No) => Sent::No,
            Self::Answered { key_status: KeyStatus::NotRun, .. } => Sent::No,
            Self::Answered { status, key_status: KeyStatus::NotStated, .. }
                if is_about_credentials(status) =>
            {
                Sent::No
            }
            Self::Failed(Sent::Maybe) | Self::Answered { .. } => Sent::Maybe,
        }
    }
}

#[cfg(test)]
#[path = "retry_decision_test.rs"]
mod tests;
