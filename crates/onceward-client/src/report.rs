//! How a call went, as a value.

use std::fmt;
use std::time::Duration;

/// How one call went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often it was sent by this call.
    pub tries: u32,
    /// Where its answer comes from.
    pub source: Source,
    /// From the call to its end.
    pub took: Duration,
    /// Of that, between tries.
    pub paused: Duration,
    /// The tries that were not the last, in order; no more than [`FAILURES_MAX`] are kept.
    pub failures: Vec<Failure>,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// From the server, which ran it for this try or does not say otherwise.
    #[default]
    Server,
    /// From the server's receipt: an earlier try had run it.
    Replay,
    /// From our own journal: nothing was sent.
    Journal,
}

/// A try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What became of it.
    pub what: What,
    /// How long was waited before the next.
    pub paused: Duration,
}

/// What became of a try that was not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// This status came back.
    Status(u16),
    /// No whole answer came back, and why.
    NoAnswer(String),
}

/// The most failures that a report keeps: enough for a person, whatever the terms.
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
