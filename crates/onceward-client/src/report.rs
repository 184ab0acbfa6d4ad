//! The report of one call: number of tries, time taken, failures and the source of the answer.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

use super::key_status::{is_kept, is_not_yet_recorded, is_replay};

/// How one call went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallReport {
    /// Number of times that this call sent the request.
    pub tries: u32,
    /// Where its answer comes from.
    pub source: ReplySource,
    /// Whether the server keeps its answer.
    pub server_record: ServerRecord,
    /// How long the call took.
    pub took: Duration,
    /// Of that, the time spent waiting between tries.
    pub paused: Duration,
    /// The tries that were not the last, in order; no more than [`FAILURES_MAX`] are kept.
    pub failures: Vec<FailedTry>,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplySource {
    /// From the server, which did not mark it as replayed.
    #[default]
    Server,
    /// From the server's receipt: an earlier try had run it.
    Replay,
    /// From the client's own journal: nothing was sent.
    Journal,
}

/// Whether the server keeps an answer, so that a retry gets the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerRecord {
    /// It does not say so.
    #[default]
    NotStated,
    /// It keeps the answer (`Idempotency-Expires`, `Idempotent-Replayed`).
    Kept,
    /// It has the answer, but its store was away when it sent it (`Onceward-Recorded: not-yet`). The effect has
    /// happened; if the server crashes before it has stored the answer, a retry is told that the outcome is unknown.
    NotYet,
}

/// A try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedTry {
    /// Its result.
    pub cause: FailureCause,
    /// The pause before the next try.
    pub paused: Duration,
}

/// The result of a try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureCause {
    /// An answer with this status.
    Status(u16),
    /// No complete answer, and why.
    NoAnswer(String),
}

/// The maximum number of failures that a report keeps.
pub const FAILURES_MAX: usize = 32;

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "answered {status}"),
            Self::NoAnswer(why) => write!(f, "no answer: {why}"),
        }
    }
}

impl CallReport {
    /// Reads from the answer's fields where it comes from and whether the server keeps it.
    pub(crate) fn read_fields(&mut self, headers: &HeaderMap) {
        if is_replay(headers) {
            self.source = ReplySource::Replay;
        }
        self.server_record = if is_not_yet_recorded(headers) {
            ServerRecord::NotYet
        } else if is_replay(headers) || is_kept(headers) {
            ServerRecord::Kept
        } else {
            ServerRecord::NotStated
        };
    }
}

/// One line for an operator: `3 tries in 1.2 s (answered 503, no answer: timed out), replayed`.
impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.source == ReplySource::Journal {
            return f.write_str("from the journal, nothing was sent");
        }
        let tries = if self.tries == 1 { "try" } else { "tries" };
        write!(f, "{} {tries} in {:.1?}", self.tries, self.took)?;
        for (at, failure) in self.failures.iter().enumerate() {
            f.write_str(if at == 0 { " (" } else { ", " })?;
            write!(f, "{}", failure.cause)?;
        }
        f.write_str(if self.failures.is_empty() { "" } else { ")" })?;
        f.write_str(if self.source == ReplySource::Replay { ", replayed" } else { "" })?;
        let not_yet = self.server_record == ServerRecord::NotYet;
        f.write_str(if not_yet { ", not yet recorded by the server" } else { "" })
    }
}
