//! The table of one route that says by status what a response means for its key: replay, retry or unknown.
//!
//! ```text
//! set for this status                        as set
//! 401 403 407 412 421 423 425 426 428 429    retry: refused before execution
//! 409 with Retry-After                       retry
//! 408 502 503 504 520-599                    unknown: a timeout, or a hop that lost the answer
//! any other                                  by its class: replay, unless the class is set
//! ```
//!
//! A run that follows an unknown outcome reads 409, 412, 423 and 425 as unknown: the earlier copy may be running, or be
//! the reason.

use http::StatusCode;
use onceward::{Prior, Retention};

/// The effect of a response on its key.
///
/// A forwarder can override the route's table with an `Action` among the extensions of its response: 502 with
/// [`Action::Retry`] where nothing was sent, 504 with [`Action::Unknown`] where the request was sent and no answer
/// came. A handler rather says what it knows about its effect, with a [`ReportedEffect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// It is the answer: kept and replayed.
    Replay,
    /// It is sent and not kept: the key is free again, and one of the waiting requests runs.
    Retry,
    /// The outcome is unknown: the policy decides.
    Unknown,
}

impl Action {
    /// Its name in configurations and publications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Retry => "retry",
            Self::Unknown => "unknown",
        }
    }
}

/// A handler's knowledge about the effect of its request, where that is more than its status says: among the
/// extensions of its response, it overrides the route's table.
///
/// ```
/// # use axum::{Extension, http::StatusCode, response::IntoResponse};
/// # use onceward_http::ReportedEffect;
/// async fn charge() -> impl IntoResponse {
///     // The provider was not called, so the same key may be tried again.
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(ReportedEffect::None), "out of connections")
/// }
/// # let _: axum::routing::MethodRouter = axum::routing::post(charge);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportedEffect {
    /// Nothing happened: the key is free again.
    None,
    /// It was decided: this response is the answer, and is kept and replayed.
    Decided,
    /// Unknown: the policy decides.
    Unknown,
}

impl From<ReportedEffect> for Action {
    fn from(effect: ReportedEffect) -> Self {
        match effect {
            ReportedEffect::None => Self::Retry,
            ReportedEffect::Decided => Self::Replay,
            ReportedEffect::Unknown => Self::Unknown,
        }
    }
}

/// The first digit of a final status.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusClass {
    /// 2xx.
    Success,
    /// 3xx.
    Redirection,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
}

impl StatusClass {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Redirection, Self::ClientError, Self::ServerError];

    /// The class of a first digit, 2 to 5.
    pub fn from_digit(digit: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.digit() == digit)
    }

    /// Its first digit.
    pub fn digit(self) -> u8 {
        match self {
            Self::Success => 2,
            Self::Redirection => 3,
            Self::ClientError => 4,
            Self::ServerError => 5,
        }
    }

    /// The class of a status. One below 200 counts as a success, and one from 600 on as a server error:
    /// both are undefined, but the first means that something has begun.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            ..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

/// The statuses that the table names, whatever their class is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// The service refused before it began.
    Refused,
    /// A timeout, or a hop in front of the service: the service may have run.
    AnswerLost,
}

fn named(status: StatusCode) -> Option<Named> {
    match status.as_u16() {
        401 | 403 | 407 | 412 | 421 | 423 | 425 | 426 | 428 | 429 => Some(Named::Refused),
        408 | 502..=504 | 520..=599 => Some(Named::AnswerLost),
        _ => None,
    }
}

/// The statuses that the table names one by one, for publication; 520 to 599 are [`LOST_RANGE`].
const NAMED_ONE_BY_ONE: [u16; 14] = [401, 403, 407, 408, 412, 421, 423, 425, 426, 428, 429, 502, 503, 504];

/// The statuses that only proxies use. All of them mean what 502 means.
pub(crate) const LOST_RANGE: std::ops::RangeInclusive<u16> = 520..=599;

/// On a run that follows an unknown outcome the earlier copy may be running, or be the reason for these.
fn speaks_of_an_earlier_copy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 412 | 423 | 425)
}

/// What each response means for its key, and how long it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Actions {
    statuses: Vec<(StatusCode, Action)>,
    classes: [Option<Action>; 4],
    answer_lost: Action,
    kept_statuses: Vec<(StatusCode, Retention)>,
    kept: [Option<Retention>; 4],
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            statuses: Vec::new(),
            classes: [None; 4],
            answer_lost: Action::Unknown,
            kept_statuses: Vec::new(),
            kept: [None; 4],
        }
    }
}

impl Actions {
    pub(crate) fn on_status(&mut self, status: StatusCode, action: Action) {
        self.statuses.retain(|(other, _)| *other != status);
        self.statuses.push((status, action));
        self.statuses.sort_unstable_by_key(|(status, _)| *status);
    }

    pub(crate) fn on_class(&mut self, class: StatusClass, action: Action) {
        self.classes[class as usize] = Some(action);
    }

    /// Sets what a class means, unless that was set.
    pub(crate) fn default_class(&mut self, class: StatusClass, action: Action) {
        self.classes[class as usize].get_or_insert(action);
    }

    /// Sets what 408, 502, 503, 504 and 520 to 599 mean.
    pub(crate) fn on_answer_lost(&mut self, action: Action) {
        self.answer_lost = action;
    }

    pub(crate) fn keep(&mut self, class: StatusClass, retention: Retention) {
        self.kept[class as usize] = Some(retention);
    }

    pub(crate) fn keep_status(&mut self, status: StatusCode, retention: Retention) {
        self.kept_statuses.retain(|(other, _)| *other != status);
        self.kept_statuses.push((status, retention));
    }

    /// What a status means on a run that nothing is known of before.
    pub(crate) fn of(&self, status: StatusCode) -> Action {
        self.of_run(status, false, Prior::Nothing)
    }

    /// What a status means. `retry_after`: the response says when to come back.
    pub(crate) fn of_run(&self, status: StatusCode, retry_after: bool, prior: Prior) -> Action {
        if let Some((_, action)) = self.statuses.iter().find(|(set, _)| *set == status) {
            return *action;
        }
        if prior != Prior::Nothing && speaks_of_an_earlier_copy(status) {
            return Action::Unknown;
        }
        match named(status) {
            Some(Named::Refused) => Action::Retry,
            Some(Named::AnswerLost) => self.answer_lost,
            None if retry_after && status == StatusCode::CONFLICT => Action::Retry,
            None => self.of_class(StatusClass::of(status)),
        }
    }

    pub(crate) fn of_class(&self, class: StatusClass) -> Action {
        self.classes[class as usize].unwrap_or(Action::Replay)
    }

    /// What 520 to 599 mean, unless one is set by itself.
    pub(crate) fn of_answer_lost(&self) -> Action {
        self.answer_lost
    }

    /// Whether 409 with `Retry-After` frees the key, whatever 409 without it means.
    pub(crate) fn frees_conflict_with_retry_after(&self) -> bool {
        !self.statuses.iter().any(|(set, _)| *set == StatusCode::CONFLICT)
    }

    /// The statuses that do not go by their class, in order, without 520 to 599 where these are not set.
    pub(crate) fn statuses(&self) -> Vec<(StatusCode, Action)> {
        let by_table = NAMED_ONE_BY_ONE.into_iter().filter_map(|code| StatusCode::from_u16(code).ok());
        let mut all: Vec<StatusCode> =
            by_table.chain(self.statuses.iter().map(|(status, _)| *status)).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|status| (status, self.of(status))).collect()
    }

    pub(crate) fn kept(&self, class: StatusClass) -> Option<Retention> {
        self.kept[class as usize]
    }

    pub(crate) fn kept_status(&self, status: StatusCode) -> Option<Retention> {
        let by_itself = self.kept_statuses.iter().find(|(set, _)| *set == status).map(|(_, kept)| *kept);
        by_itself.or_else(|| self.kept(StatusClass::of(status)))
    }
}

#[cfg(test)]
#[path = "action_test.rs"]
mod tests;
