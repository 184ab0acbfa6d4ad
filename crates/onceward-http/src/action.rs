//! The table of one route that says by status what a response means for its key: replay, retry or unknown.

use http::StatusCode;
use onceward::Retention;

/// What a response means for its key.
///
/// A service can override the route's table: an `Action` among the extensions of its response is used instead. A forwarder, for one, answers 502 with [`Action::Retry`] where nothing was
/// sent, and 504 with [`Action::Unknown`] where the request was sent and no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The first digit of a final status.
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

/// What each response means for its key, and how long it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Actions {
    statuses: Vec<(StatusCode, Action)>,
    classes: [Action; 4],
    kept: [Option<Retention>; 4],
}

impl Default for Actions {
    /// Final answers are kept. Statuses that mean "not now" and server errors free the key.
    fn default() -> Self {
        let not_now = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PRECONDITION_FAILED,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        Self {
            statuses: not_now.map(|status| (status, Action::Retry)).into(),
            classes: [Action::Replay, Action::Replay, Action::Replay, Action::Retry],
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
        self.classes[class as usize] = action;
    }

    pub(crate) fn keep(&mut self, class: StatusClass, retention: Retention) {
        self.kept[class as usize] = Some(retention);
    }

    pub(crate) fn of(&self, status: StatusCode) -> Action {
        match self.statuses.iter().find(|(listed, _)| *listed == status) {
            Some((_, action)) => *action,
            None => self.of_class(StatusClass::of(status)),
        }
    }

    pub(crate) fn of_class(&self, class: StatusClass) -> Action {
        self.classes[class as usize]
    }

    pub(crate) fn statuses(&self) -> &[(StatusCode, Action)] {
        &self.statuses
    }

    pub(crate) fn kept(&self, class: StatusClass) -> Option<Retention> {
        self.kept[class as usize]
    }
}
