//! What the work produced, and what it says when it produced nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::policy::Retention;

/// Longest note, in bytes: next to a snapshot that was not stored, or about why a try did not work.
pub const NOTE_BYTES_MAX: usize = 256;

/// The result of the work: the verdict, and the snapshot that every retry is answered with.
#[derive(Clone)]
pub struct Outcome {
    verdict: Verdict,
    snapshot: Snapshot,
    /// Where the work knows better than the policy. Used when the receipt is written, and not part of it.
    retention: Option<Retention>,
}

/// Whether the work got done. A failure is an outcome too: a declined card stays declined.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It did what was asked.
    Succeeded,
    /// It ended, without what was asked.
    Failed,
}

/// The content of a replay.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, PartialEq, Eq)]
pub enum Snapshot {
    /// These bytes.
    Kept(Bytes),
    /// Nothing: the answer was too large to keep. A short note says what it was.
    Omitted(Bytes),
}

static NO_BYTES: Bytes = Bytes::new();

impl Outcome {
    /// The work did what was asked; `body` is the answer to replay.
    pub fn succeeded(body: impl Into<Bytes>) -> Self {
        Self { verdict: Verdict::Succeeded, snapshot: Snapshot::Kept(body.into()), retention: None }
    }

    /// The work ended without what was asked. By policy this answer is kept and replayed
    /// ([`OnFailure::Replay`](crate::OnFailure)) or the key is free again.
    pub fn failed(body: impl Into<Bytes>) -> Self {
        Self { verdict: Verdict::Failed, snapshot: Snapshot::Kept(body.into()), retention: None }
    }

    /// The work ended, but its answer is not kept: it was streamed or too large. `note` is cut at
    /// [`NOTE_BYTES_MAX`].
    pub fn omitted(verdict: Verdict, note: impl Into<Bytes>) -> Self {
        let mut note = note.into();
        note.truncate(NOTE_BYTES_MAX);
        Self { verdict, snapshot: Snapshot::Omitted(note), retention: None }
    }

    /// Sets how long this very outcome is kept, whatever the policy says of its kind: 1 ms to
    /// [`RETENTION_MAX`](crate::RETENTION_MAX), or forever. Any other time is taken as the nearest of these: the
    /// effect has happened, so there is nothing left to refuse.
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention.within_bounds());
        self
    }

    /// Returns whether the work got done.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The content of a replay.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The answer's bytes; empty where they were not kept.
    pub fn body(&self) -> &Bytes {
        match &self.snapshot {
            Snapshot::Kept(body) => body,
            Snapshot::Omitted(_) => &NO_BYTES,
        }
    }

    /// How long this very outcome is to be kept, if it was said. Never so for one from a receipt.
    pub fn retention(&self) -> Option<Retention> {
        self.retention
    }

    /// The same outcome without its body.
    pub(crate) fn without_body(&self, note: impl Into<Bytes>) -> Self {
        Self { retention: self.retention, ..Self::omitted(self.verdict, note) }
    }
}

/// By what is stored: the retention is not, so it cannot tell a recorded outcome from the one it records.
impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        (self.verdict, &self.snapshot) == (other.verdict, &other.snapshot)
    }
}

impl Eq for Outcome {}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.verdict, self.snapshot)
    }
}

/// Without the body: it may be long, and it has no business in a log.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(body) => write!(f, "{} bytes", body.len()),
            Self::Omitted(note) => write!(f, "omitted: {note:?}"),
        }
    }
}

/// The end of work that has no outcome.
///
/// Any error becomes "the effect may have happened" through `?`, because an error alone never proves
/// the contrary. Work that knows better says so with [`Stopped::before_effect`].
///
/// ```
/// use onceward::{Outcome, Stopped};
///
/// async fn charge() -> Result<Outcome, Stopped> {
///     let amount: u32 = "12".parse().map_err(Stopped::before_effect)?; // nothing was done yet
///     let receipt = std::fs::read("/dev/null")?;                       // who knows
///     Ok(Outcome::succeeded(format!("{amount} {}", receipt.len())))
/// }
/// ```
#[derive(Clone)]
pub struct Stopped {
    effect: Effect,
    why: Why,
}

#[derive(Clone)]
enum Why {
    /// It continues after this long.
    Suspended(Duration),
    Text(Cow<'static, str>),
    Error(Arc<dyn std::error::Error + Send + Sync>),
}

/// Whether stopped work may have had its effect.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Certainly not: the key is free again.
    None,
    /// Perhaps: policy decides ([`OnUnknown`](crate::OnUnknown)).
    Maybe,
}

impl Stopped {
    /// Nothing happened; the same intent may be run again.
    pub fn before_effect(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { effect: Effect::None, why: Why::Error(Arc::from(why.into())) }
    }

    /// The effect may or may not have happened.
    pub fn unknown(why: impl Into<Cow<'static, str>>) -> Self {
        Self { effect: Effect::Maybe, why: Why::Text(why.into()) }
    }

    /// Not now: the work is to continue after `pause`, from its recorded [steps](crate::Lease::step). For an
    /// intent that carries its input; the try does not count. Any other intent is free to be asked for again.
    pub fn suspend(pause: Duration) -> Self {
        Self { effect: Effect::None, why: Why::Suspended(pause) }
    }

    /// After how long the work is to continue, if it was suspended.
    pub fn suspended(&self) -> Option<Duration> {
        match self.why {
            Why::Suspended(pause) => Some(pause),
            _ => None,
        }
    }

    /// Returns whether the effect may have happened.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// The error that stopped the work, if it was one.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::Text(_) | Why::Suspended(_) => None,
            Why::Error(error) => Some(&**error),
        }
    }
}

// Like `anyhow::Error`, this type is deliberately not an `Error` itself: otherwise `?` could not convert every error.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self { effect: Effect::Maybe, why: Why::Error(Arc::new(error)) }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Suspended(pause) => write!(f, "suspended for {pause:?}"),
            Why::Text(text) => f.write_str(text),
            Why::Error(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopped(effect {:?}: {self})", self.effect)
    }
}
