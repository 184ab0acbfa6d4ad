//! The contract for one kind of operation: how long things last, and what happens in the awkward
//! cases. Checked when it is built, so that the code that uses it can rely on every duration.

mod builder;

use std::time::Duration;

pub use builder::PolicyBuilder;

use crate::error::{Error, Result};
use crate::outcome::{Outcome, Verdict};

/// Shortest lease. Below this, renewals at a third of it would race the store's own latency.
pub const LEASE_MIN: Duration = Duration::from_millis(20);
/// Longest lease. A crashed owner blocks its key for this long.
pub const LEASE_MAX: Duration = Duration::from_hours(24);
/// Longest time a duplicate may wait; longer waits hold connections whose client has gone.
pub const WAIT_MAX: Duration = Duration::from_hours(1);
/// Shortest retention.
const RETENTION_MIN: Duration = Duration::from_millis(1);
/// Longest bounded retention; beyond it, use [`Retention::Forever`].
pub const RETENTION_MAX: Duration = Duration::from_hours(24 * 366 * 100);

/// Most tries that a policy may allow.
pub const TRIES_MAX: u16 = 10_000;
/// Longest pause between two tries, and longest time that an effect can be late.
pub const BACKOFF_MAX: Duration = Duration::from_hours(24 * 7);

/// The idempotency contract of one kind of operation: lease, retention, duplicates, failures, unknown outcomes. Start
/// from a preset and change what differs.
///
/// ```
/// use onceward::{OnUnknown, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::http()
///     .to_builder()
///     .with_lease(Duration::from_secs(10))
///     .with_on_unknown(OnUnknown::Retry)
///     .build()?;
/// assert_eq!(policy.lease(), Duration::from_secs(10));
/// # Ok::<(), onceward::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    lease: Duration,
    on_duplicate: OnDuplicate,
    on_failure: OnFailure,
    on_unknown: OnUnknown,
    on_expired: OnExpired,
    retention_succeeded: Retention,
    retention_failed: Retention,
    tries_max: u16,
    backoff: Backoff,
    keep_input: KeepInput,
    late_effect_max: Duration,
}

/// How long an intent that carries its input waits between two tries: the first pause, doubled with every
/// further one, up to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backoff {
    /// The pause after the first try.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// A pause that begins at `min` and is doubled after every try, up to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    /// The pause after this number of tries.
    pub(crate) fn after(self, tries: u16) -> Duration {
        let doublings = u32::from(tries.saturating_sub(1)).min(30);
        self.min.saturating_mul(1 << doublings).min(self.max)
    }
}

/// Whether the input is kept when an intent is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepInput {
    /// It is dropped: an ask that comes again brings it along.
    UntilDone,
    /// It is kept for as long as the receipt.
    WithReceipt,
}

/// The treatment of a duplicate while the first run continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// It waits for the first one's outcome, at most this long.
    Wait(Duration),
    /// It is refused at once, with a hint when to come back.
    Conflict,
}

impl OnDuplicate {
    /// Returns how long a duplicate waits; `None` if it is refused at once.
    pub fn wait_max(self) -> Option<Duration> {
        match self {
            Self::Wait(at_most) => Some(at_most),
            Self::Conflict => None,
        }
    }
}

/// The effect of a failed outcome on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The failure is the answer: it is kept and replayed.
    Replay,
    /// The failure is reported and forgotten: the same key may be tried again.
    Retry,
}

/// The treatment of an unknown outcome: the owner died, was dropped, lost its
/// lease, or said so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Never run again automatically: held until it is settled.
    Hold,
    /// Run again, with a higher fence. For work that is safe to repeat, or that hands the fence or a
    /// child key to the service that has the effect.
    Retry,
}

impl OnUnknown {
    /// Its name in answers and publications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Retry => "retry",
        }
    }
}

/// The treatment of a key past its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnExpired {
    /// It is a new intent.
    Run,
    /// It is refused for as long as its tombstone is kept.
    Refuse(Retention),
}

impl OnExpired {
    /// Returns how long a tombstone refuses the key; `None` if a late retry is a new intent.
    pub fn tombstone(self) -> Option<Retention> {
        match self {
            Self::Run => None,
            Self::Refuse(kept) => Some(kept),
        }
    }
}

/// How long a receipt is kept and honoured.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// This long.
    For(Duration),
    /// Forever.
    Forever,
}

impl Retention {
    /// The nearest time for which something can be kept.
    pub(crate) fn within_bounds(self) -> Self {
        match self {
            Self::Forever => Self::Forever,
            Self::For(duration) => Self::For(duration.clamp(RETENTION_MIN, RETENTION_MAX)),
        }
    }

    /// The duration, if there is an end to it.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::For(duration) => Some(duration),
            Self::Forever => None,
        }
    }
}

impl Policy {
    /// For requests: kept 24 hours; duplicates wait up to 30 seconds; a failure is the answer; an
    /// unknown outcome is held.
    pub fn http() -> Self {
        const DAY: Retention = Retention::For(Duration::from_hours(24));
        Self {
            lease: Duration::from_secs(30),
            on_duplicate: OnDuplicate::Wait(Duration::from_secs(30)),
            on_failure: OnFailure::Replay,
            on_unknown: OnUnknown::Hold,
            on_expired: OnExpired::Run,
            retention_succeeded: DAY,
            retention_failed: DAY,
            tries_max: 5,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(300)),
            keep_input: KeepInput::UntilDone,
            late_effect_max: Duration::ZERO,
        }
    }

    /// For messages and webhooks: kept 7 days; a failure or a crash frees the key for the redelivery
    /// that the queue will make; a duplicate is refused at once.
    pub fn queue() -> Self {
        const WEEK: Retention = Retention::For(Duration::from_hours(24 * 7));
        Self {
            lease: Duration::from_secs(60),
            on_duplicate: OnDuplicate::Conflict,
            on_failure: OnFailure::Retry,
            on_unknown: OnUnknown::Retry,
            on_expired: OnExpired::Run,
            retention_succeeded: WEEK,
            retention_failed: WEEK,
            ..Self::http()
        }
    }

    /// For money: kept forever, a failure is the answer, an unknown outcome is held.
    pub fn ledger() -> Self {
        Self { retention_succeeded: Retention::Forever, retention_failed: Retention::Forever, ..Self::http() }
    }

    /// A builder that starts from this policy, to change some of it.
    pub fn to_builder(&self) -> PolicyBuilder {
        PolicyBuilder::from(self.clone())
    }

    /// How often an intent that carries its input is tried.
    pub fn tries_max(&self) -> u16 {
        self.tries_max
    }

    /// How long it waits between two tries.
    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// Returns whether the input is kept when the intent is done.
    pub fn keep_input(&self) -> KeepInput {
        self.keep_input
    }

    /// How long an effect can happen after its owner has last had the lease.
    pub fn late_effect_max(&self) -> Duration {
        self.late_effect_max
    }

    /// How long a claim lasts between renewals.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The treatment of a duplicate while the first run continues.
    pub fn on_duplicate(&self) -> OnDuplicate {
        self.on_duplicate
    }

    /// The effect of a failed outcome on the key.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// The treatment of an unknown outcome.
    pub fn on_unknown(&self) -> OnUnknown {
        self.on_unknown
    }

    /// The treatment of a key past its retention.
    pub fn on_expired(&self) -> OnExpired {
        self.on_expired
    }

    /// How long an outcome with this verdict is kept.
    pub fn retention(&self, verdict: Verdict) -> Retention {
        match verdict {
            Verdict::Succeeded => self.retention_succeeded,
            Verdict::Failed => self.retention_failed,
        }
    }

    /// How long this outcome is kept: as the outcome says, or by its verdict.
    pub(crate) fn retention_of(&self, outcome: &Outcome) -> Retention {
        outcome.retention().unwrap_or_else(|| self.retention(outcome.verdict()))
    }
}

pub(crate) fn check_retention(what: &str, retention: Retention) -> Result<()> {
    match retention {
        Retention::For(duration) if duration < RETENTION_MIN => {
            Err(Error::invalid(format!("{what} cannot be kept for {duration:?}; at least 1 ms is needed")))
        }
        Retention::For(duration) if duration > RETENTION_MAX => Err(Error::invalid(format!(
            "{what} cannot be kept for {duration:?}; beyond 100 years, say Retention::Forever"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
