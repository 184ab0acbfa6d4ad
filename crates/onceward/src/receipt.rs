//! A receipt: what became of one intent. The stored record, decoded.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::policy::{OnUnknown, Retention};
use crate::store::{Age, Due, State, Version};

/// The state of one intent, as the store had it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The version of the record; every change must name it.
    pub version: Version,
    /// The rest of the lease, the retention, the tombstone or the pause before the next try.
    pub due: Due,
    /// How long ago it was written.
    pub age: Age,
    /// The state and what belongs to it.
    pub status: Status,
}

impl Receipt {
    /// A receipt of this version and status, with what remains until it falls due and its age.
    pub fn new(version: Version, due: Due, age: Age, status: Status) -> Self {
        Self { version, due, age, status }
    }

    /// The receipt as it is at the latest by `now`, if the store was asked for it at `asked_at`. `None`
    /// if its time may have come meanwhile: the caller must then look again.
    pub(crate) fn aged(mut self, asked_at: Duration, now: Duration) -> Option<Self> {
        if let Due::In(remaining) = &mut self.due {
            let age = now.saturating_sub(asked_at);
            *remaining = remaining.checked_sub(age).filter(|left| !left.is_zero())?;
        }
        Some(self)
    }
}

/// The state of a receipt and what belongs to it.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// No run has begun, or every run that began has ended without an outcome.
    Waiting(Waiting),
    /// A run has the lease.
    Held(Held),
    /// The outcome is known, or the intent was closed.
    Done(Done),
    /// The effect may or may not have happened.
    Unknown(Unknown),
    /// It was tried as often as its policy allows.
    Dead(Dead),
    /// The outcome was forgotten at the end of its retention.
    Gone(Gone),
}

/// A claim, and all that its owner needs to be recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The request.
    pub fingerprint: Fingerprint,
    /// Which try has it; [`Attempt::NONE`] if it was never claimed.
    pub attempt: Attempt,
    /// The version of the record when it was claimed.
    pub fence: Fence,
    /// How many claims there were since the key was last free, with this one; 0 if it was never claimed.
    pub tries: u16,
}

impl Claim {
    /// Returns whether both are of the same run.
    pub fn is_same_run(&self, other: &Self) -> bool {
        self.is_of(other.attempt, other.fence)
    }

    /// Whether it is of the run with this attempt and this fence.
    pub fn is_of(&self, attempt: Attempt, fence: Fence) -> bool {
        self.attempt == attempt && self.fence == fence
    }
}

/// The part of an intent with which another process can run it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The request.
    pub input: Bytes,
    /// How often it was claimed. Tries that were suspended do not count.
    pub started: u16,
    /// How many of those ended. In the others, the process died or lost its lease.
    pub finished: u16,
    /// Why the last try had no outcome: one line of text, without control characters.
    pub note: String,
}

impl Job {
    /// A job that has not begun.
    pub fn new(input: Bytes) -> Self {
        Self { input, started: 0, finished: 0, note: String::new() }
    }
}

/// A receipt in state waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The request, and whose run was the last.
    pub claim: Claim,
    /// Whether an earlier run may have had its effect.
    pub prior: Prior,
    /// If the outcome of one of them is unknown: how long after this was written its effect can still happen.
    pub late_effect_max: Duration,
    /// The job; `None` if only the asks carry it.
    pub job: Option<Arc<Job>>,
}

/// Whether a run before a claim may have had its effect.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// None of them can have had the effect.
    Nothing,
    /// The outcome of one was unknown, and it was settled as not done.
    Settled,
    /// One may have had its effect. A run in its place never frees the key by itself.
    Unknown,
}

/// A receipt in state held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The claim that holds it.
    pub claim: Claim,
    /// The rule it was claimed under: work begun under `Hold` is never repeated because of a
    /// later ask under `Retry`.
    pub on_unknown: OnUnknown,
    /// The kind of owner.
    pub owner: Owner,
    /// Whether an earlier run may have had its effect.
    pub prior: Prior,
    /// How long after the end of the lease the effect can still happen.
    pub late_effect_max: Duration,
    /// The job, if it is kept.
    pub job: Option<Arc<Job>>,
}

/// The kind of owner of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// A run of the process that wrote the claim: it dies with that process.
    Run,
    /// The holder of a ticket, which may outlive that process.
    Ticket,
}

impl Owner {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Ticket => "ticket",
        }
    }
}

/// A receipt in state done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The claim under which it was done.
    pub claim: Claim,
    /// The end of the work.
    pub end: End,
    /// How long a tombstone is kept once the retention is over.
    pub tombstone: Option<Retention>,
    /// The request, if the policy keeps it.
    pub job: Option<Arc<Job>>,
}

impl Done {
    /// An end without a tombstone, and without what was asked.
    pub fn new(claim: Claim, end: End) -> Self {
        Self { claim, end, tombstone: None, job: None }
    }
}

/// The end of a done intent.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The work produced this.
    Outcome(Outcome),
    /// It was closed without an outcome: no ask runs it, under any policy, until its retention ends.
    Closed(Closed),
}

/// Why an intent was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Closed {
    /// It was cancelled before a run began.
    Cancelled,
    /// It was dead, and an operator decided that it must not be tried again.
    Discarded,
    /// It was undone before it began: a late copy of it must not run.
    Undone,
}

impl Closed {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
            Self::Undone => "undone",
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A receipt in state unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unknown {
    /// The claim of the run whose outcome is unknown.
    pub claim: Claim,
    /// How it came about.
    pub reason: UnknownReason,
    /// Whether an earlier run may have had its effect.
    pub prior: Prior,
    /// How long after the end of the lease the effect can still happen.
    pub late_effect_max: Duration,
    /// Why the outcome is unknown, in one line; empty if there is a job, which has a note of its own.
    pub note: String,
    /// The job, if it is kept.
    pub job: Option<Arc<Job>>,
}

/// A receipt in state dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dead {
    /// The request, and whose run was the last.
    pub claim: Claim,
    /// Whether one of its runs may have had its effect.
    pub prior: Prior,
    /// The rule its last run was claimed under: under `Hold`, an intent of which the outcome of one run is unknown is
    /// tried again only after it was settled as not done.
    pub on_unknown: OnUnknown,
    /// If the outcome of one of its runs is unknown: how long after this was written its effect can still happen.
    pub late_effect_max: Duration,
    /// Why it was given up, in one line; empty if there is a job, which has a note of its own.
    pub note: String,
    /// The job, with its last error; `None` if that was never kept, or was erased.
    pub job: Option<Arc<Job>>,
}

/// A receipt in state gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone {
    /// The fence of the run that was forgotten.
    pub fence: Fence,
}

/// How an outcome became unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnknownReason {
    /// The lease expired, and its owner recorded no end.
    LeaseEnded,
    /// The work said that it cannot tell.
    Reported,
    /// The work panicked.
    Panicked,
    /// The work was dropped before its end.
    Dropped,
}

impl UnknownReason {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeaseEnded => "lease_ended",
            Self::Reported => "reported",
            Self::Panicked => "panicked",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Status {
    /// The state alone.
    pub fn state(&self) -> State {
        match self {
            Self::Waiting(_) => State::Waiting,
            Self::Held(_) => State::Held,
            Self::Done(_) => State::Done,
            Self::Unknown(_) => State::Unknown,
            Self::Dead(_) => State::Dead,
            Self::Gone(_) => State::Gone,
        }
    }

    /// The claim it stems from; a tombstone has forgotten it.
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Waiting(Waiting { claim, .. })
            | Self::Held(Held { claim, .. })
            | Self::Done(Done { claim, .. })
            | Self::Unknown(Unknown { claim, .. })
            | Self::Dead(Dead { claim, .. }) => Some(claim),
            Self::Gone(_) => None,
        }
    }

    /// The fence of its run.
    pub fn fence(&self) -> Fence {
        match self {
            Self::Gone(gone) => gone.fence,
            other => other.claim().expect("all but a tombstone have one").fence,
        }
    }

    /// Returns the part of the intent with which another process can run it.
    pub fn job(&self) -> Option<&Arc<Job>> {
        match self {
            Self::Waiting(Waiting { job, .. })
            | Self::Held(Held { job, .. })
            | Self::Done(Done { job, .. })
            | Self::Unknown(Unknown { job, .. })
            | Self::Dead(Dead { job, .. }) => job.as_ref(),
            Self::Gone(_) => None,
        }
    }

    /// Why the last try had no outcome, in one line; empty if nothing is known.
    pub fn note(&self) -> &str {
        match self {
            Self::Unknown(Unknown { note, .. }) | Self::Dead(Dead { note, .. }) if !note.is_empty() => note,
            other => other.job().map_or("", |job| &job.note),
        }
    }

    /// The outcome, if it is done and was not closed.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Done(Done { end: End::Outcome(outcome), .. }) => Some(outcome),
            _ => None,
        }
    }

    /// Returns whether it is of this run.
    pub fn is_of(&self, run: &Claim) -> bool {
        self.claim().is_some_and(|claim| claim.is_same_run(run))
    }
}

/// The random id of one try. It lets a claim whose answer was lost recognise itself. Printed and read as 32
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt(pub u128);

impl Attempt {
    /// Of an intent that was never claimed.
    pub const NONE: Self = Self(0);
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {:08x}…", self.0 >> 96)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Attempt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let attempt = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        attempt.map(Self).ok_or_else(|| Error::new(ErrorKind::Invalid, "an attempt is 32 hexadecimal digits"))
    }
}

/// A number that grows with every takeover of the same id. Hand it to whatever has the effect: a
/// write that carries an older fence than one already seen comes from a previous owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
