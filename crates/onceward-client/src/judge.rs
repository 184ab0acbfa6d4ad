//! What became of one try, and what that means for the next: one pure function.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header::CONTENT_TYPE};

use onceward_http::problem::Problem;

/// What makes it harmless to send a request a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its method: `GET`, `HEAD`, `OPTIONS`, `TRACE` change nothing.
    Safe,
    /// Its key.
    Keyed,
    /// Nothing: only a try that provably never left may be repeated.
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
    /// Perhaps.
    Maybe,
}

/// What became of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// There is a whole answer.
    Answered {
        /// Its status.
        status: StatusCode,
        /// When the server asks to be asked again.
        retry_after: Option<Duration>,
        /// What it says about the key.
        said: Said,
    },
    /// There is none.
    Failed(Departed),
    /// There is none, and no other try could have one: it cannot be sent by this client as it is. Nothing was sent.
    Impossible,
}

/// What an answer says about the key, beyond its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// The first one with this key is still running.
    InProgress,
    /// Whether the first one took effect is unknown to the server too.
    OutcomeUnknown,
    /// The key is past its retention.
    KeyExpired,
    /// The same request must not be sent again as it is.
    NotRetryable,
}

impl Said {
    /// Whether the body has to be read to know what an answer says.
    pub fn is_in_the_body(headers: &HeaderMap) -> bool {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = value.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/problem+json")
    }

    /// Reads a problem (RFC 9457). What is no problem of ours says nothing.
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
            // The server may be finding out: then it says that asking again is worth it.
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

/// What a try means for the call it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is the end: this answer, or this failure.
    Final,
    /// The same request may be sent again.
    Again,
    /// Nothing is wrong: the first one is still running. Ask again for its answer.
    Wait,
    /// Nobody can tell at present whether it took effect; somebody may settle it on the server.
    Unknown,
    /// Nobody can tell any more whether it took effect: the server has forgotten the key.
    Expired,
}

/// Judges one try. Rules, in order: what the server says about the key, then the status.
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
    let passing = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    match guard {
        Guard::Bare => Judged::Final,
        Guard::Safe | Guard::Keyed if passing => Judged::Again,
        Guard::Safe | Guard::Keyed => Judged::Final,
    }
}

impl Tried {
    /// Whether the host did its part, or was not asked to. A refusal is a part too; silence and 5xx are not.
    pub fn went_well(&self) -> bool {
        match self {
            Self::Answered { status, .. } => !status.is_server_error(),
            Self::Failed(_) => false,
            Self::Impossible => true,
        }
    }
}

#[cfg(test)]
#[path = "judge_test.rs"]
mod tests;
