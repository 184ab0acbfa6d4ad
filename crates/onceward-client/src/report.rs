//! The report of one call: number of tries, time taken, failures and the source of the answer.

use std::fmt;
use std::time::Duration;

/// How one call went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of times that this call sent the request.
    pub tries: u32,
    /// Where its answer comes from.
    pub source: Source,
    /// How long the call took.
    pub took: Duration,
    /// Of that, the time spent waiting between tries.
    pub paused: Duration,
    /// The tries that were not the last, in order; no more than [`FAILURES_MAX`] are kept.
    pub failures: Vec<Failure>,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// From the server, which did not mark it as replayed.
    #[default]
    Server,
    /// From the server's receipt: an earlier try had run it.
    Replay,
    /// From the client's own journal: nothing was sent.
    Journal,
}

/// A try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its result.
    pub what: What,
    /// The pause before the next try.
    pub paused: Duration,
}

/// The result of a try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An answer with this status.
    Status(u16),
    /// No complete answer, and why.
    NoAnswer(String),
}

/// The maximum number of failures that a report keeps.
pub const FAILURES_MAX: usize = 32;

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "answered {status}"),
            Self::NoAnswer(why) => write!(f, "no answer: {why}"),
        }
    }
}

/// One line for a person: `3 tries in 1.2 s (answered 503, no answer: timed out), replayed`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.source == Source::Journal {
            return f.write_str("from the journal, nothing was sent");
        }
        let tries = if self.tries == 1 { "try" } else { "tries" };
        write!(f, "{} {tries} in {:.1?}", self.tries, self.took)?;
        for (at, failure) in self.failures.iter().enumerate() {
            f.write_str(if at == 0 { " (" } else { ", " })?;
            write!(f, "{}", failure.what)?;
        }
        f.write_str(if self.failures.is_empty() { "" } else { ")" })?;
        f.write_str(if self.source == Source::Replay { ", replayed" } else { "" })
    }
}
