//! A receipt: what became of one intent. The stored record, decoded.

use std::fmt;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::policy::{OnUnknown, Retention};
use crate::store::{Due, State, Version};

/// What became of one intent, as the store had it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The version of the record; every change must name it.
    pub version: Version,
    /// What remains of the lease, the retention or the tombstone.
    pub due: Due,
    /// The state and what belongs to it.
    pub status: Status,
}

impl Receipt {
    /// The receipt as it is at the latest by `now`, if the store was asked for it at `asked_at`. `None`
    /// if its time may have come meanwhile: who asked later has to look again.
    pub(crate) fn aged(mut self, asked_at: Duration, now: Duration) -> Option<Self> {
        if let Due::In(remaining) = &mut self.due {
            let age = now.saturating_sub(asked_at);
            *remaining = remaining.checked_sub(age).filter(|left| !left.is_zero())?;
        }
        Some(self)
    }
}

/// The state of a receipt and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Somebody has the lease.
    Held(Held),
    /// The outcome is known.
    Done(Done),
    /// The effect may or may not have happened.
    Unknown(Unknown),
    /// The outcome was forgotten at the end of its retention.
    Gone(Gone),
}

/// A claim, and all that its owner needs to be recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// Which try has it.
    pub attempt: Attempt,
    /// The version of the record when it was claimed.
    pub fence: Fence,
}

/// A receipt in state held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds it.
    pub claim: Claim,
    /// The rule it was claimed under: work begun under `Hold` is never repeated because somebody
    /// later asks under `Retry`.
    pub on_unknown: OnUnknown,
}

/// A receipt in state done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Who did it.
    pub claim: Claim,
    /// What came out.
    pub outcome: Outcome,
    /// How long a tombstone stands once the retention is over.
    pub tombstone: Option<Retention>,
}

/// A receipt in state unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Whose effect is in doubt.
    pub claim: Claim,
    /// How it came about.
    pub doubt: Doubt,
}

/// A receipt in state gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The fence of the run that was forgotten.
    pub fence: Fence,
}

/// How an outcome became unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The lease ended without a word from its owner.
    LeaseEnded,
    /// The work said that it cannot tell.
    Reported,
    /// The work panicked.
    Panicked,
    /// The work was dropped before its end.
    Dropped,
}

impl Status {
    /// The state alone.
    pub fn state(&self) -> State {
        match self {
            Self::Held(_) => State::Held,
            Self::Done(_) => State::Done,
            Self::Unknown(_) => State::Unknown,
            Self::Gone(_) => State::Gone,
        }
    }

    /// The claim it stems from; a tombstone has forgotten it.
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Held(held) => Some(&held.claim),
            Self::Done(done) => Some(&done.claim),
            Self::Unknown(unknown) => Some(&unknown.claim),
            Self::Gone(_) => None,
        }
    }

    /// The fence of the run it speaks of.
    pub fn fence(&self) -> Fence {
        match self {
            Self::Gone(gone) => gone.fence,
            Self::Held(Held { claim, .. })
            | Self::Done(Done { claim, .. })
            | Self::Unknown(Unknown { claim, .. }) => claim.fence,
        }
    }
}

/// The random id of one try. It lets a claim whose answer was lost recognise itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt(pub u128);

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {:08x}…", self.0 >> 96)
    }
}

/// A number that grows with every takeover of the same id. Hand it to whatever has the effect: a
/// write that carries an older fence than one already seen comes from a former owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
