//! The error of a call, with its kind and whether the request may have taken effect.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use onceward::Effect;

use super::report::CallReport;
use super::retry_state::StopReason;

/// Why a call has no answer to give, sorted by what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request cannot be sent as it is. Nothing was sent; fix it.
    Invalid,
    /// The name of the intent was used for another request. Nothing was sent; use another name.
    IntentReused,
    /// The intent was sent with credentials that this client does not have. Nothing was sent by this call; the intent
    /// stays open for a client that has them.
    CredentialsMissing,
    /// The journal cannot be used. Nothing was sent by this call.
    Journal,
    /// The call was stopped. With a journal the intent stays open: send it again, or resume.
    GaveUp,
    /// Another caller is sending the same intent.
    InProgress,
    /// The outcome is unknown, and the request is not sent again until it is
    /// [settled](super::Client::settle).
    Unknown,
    /// It is done, and its answer cannot be returned: it is too large, or the server did not keep it.
    AnswerNotAvailable,
    /// The outcome of the intent is not unknown, so there is nothing to settle.
    NotUnknown,
    /// The intent was closed in the journal: it is no longer sent. Nothing was sent by this call.
    Closed,
}

/// A call without an answer. Its `Display` is one line that an operator can act on.
pub struct Error {
    kind: ErrorKind,
    effect: Effect,
    detail: Cow<'static, str>,
    retry_in: Option<Duration>,
    report: Option<Box<CallReport>>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, effect: Effect::None, detail: detail.into(), retry_in: None, report: None, cause: None }
    }

    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, detail)
    }

    /// The journal failed. Where its write may have happened, a later resume may send the request.
    pub(crate) fn journal(error: onceward::Error) -> Self {
        let effect = match error.applied() {
            onceward::Applied::No => Effect::None,
            onceward::Applied::Maybe => Effect::Maybe,
        };
        Self::new(ErrorKind::Journal, "the journal cannot be used").effect_is(effect).caused_by(error)
    }

    /// A call that stopped before its end.
    pub(crate) fn stopped(why: StopReason, effect: Effect, last: Option<&str>) -> Self {
        let kind = match why {
            StopReason::Expired | StopReason::Unknown => ErrorKind::Unknown,
            _ => ErrorKind::GaveUp,
        };
        let reason = match why {
            StopReason::Tries => "the maximum number of tries was reached",
            StopReason::Deadline => "its time is up",
            StopReason::Budget => "the host has had its share of retries, and its time is up before the next",
            StopReason::Shut { .. } => "the host fails most of what it is sent and is left alone for a while",
            StopReason::Expired => {
                "the server does not honour the key any more, so another try could run a second time"
            }
            StopReason::Unknown => "the server cannot tell whether it took effect",
        };
        let head = if kind == ErrorKind::Unknown { "the outcome is unknown" } else { "given up for now" };
        let detail = match last {
            Some(last) => format!("{head}: {reason}; the last try: {last}"),
            None => format!("{head}: {reason}"),
        };
        let mut error = Self::new(kind, detail).effect_is(effect);
        if let StopReason::Shut { retry_in } = why {
            error.retry_in = Some(retry_in);
        }
        error
    }

    pub(crate) fn effect_is(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    pub(crate) fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn report_is(mut self, report: CallReport) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Returns the kind, which says what to do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the request may have taken effect.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// When it makes sense to try again, if that is known.
    pub fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }

    /// How the call went, if it was begun.
    pub fn report(&self) -> Option<&CallReport> {
        self.report.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        match self.effect {
            Effect::None => f.write_str(" (it did not take effect)"),
            Effect::Maybe if matches!(self.kind, ErrorKind::AnswerNotAvailable | ErrorKind::NotUnknown) => {
                Ok(())
            }
            Effect::Maybe => f.write_str(" (it may have taken effect)"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
