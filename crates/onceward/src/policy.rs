//! The contract for one kind of operation: how long things last, and what happens in the awkward
//! cases. Checked when it is made, so that nothing behind it has to doubt a duration.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::outcome::{Outcome, Verdict};

/// Shortest lease. Below this, renewals at a third of it would race the store's own latency.
pub const LEASE_MIN: Duration = Duration::from_millis(20);
/// Longest lease. A crashed owner blocks its key for this long.
pub const LEASE_MAX: Duration = Duration::from_hours(24);
/// Longest time a duplicate may wait; longer waits hold connections that nobody is behind any more.
pub const WAIT_MAX: Duration = Duration::from_hours(1);
/// Longest bounded retention; whoever means longer means [`Retention::Forever`].
pub const RETENTION_MAX: Duration = Duration::from_hours(24 * 366 * 100);

/// Most tries that a policy may allow.
pub const TRIES_MAX: u16 = 10_000;
/// Longest pause between two tries, and longest time that an effect can be late.
pub const BACKOFF_MAX: Duration = Duration::from_hours(24 * 7);

/// What is promised for one kind of operation. Start from a preset and change what differs.
///
/// ```
/// use onceward::{OnUnknown, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::http().lease(Duration::from_secs(10))?.on_unknown(OnUnknown::Retry);
/// # Ok::<(), onceward::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    lease: Duration,
    on_duplicate: OnDuplicate,
    on_failure: OnFailure,
    on_unknown: OnUnknown,
    on_expired: OnExpired,
    keep_succeeded: Retention,
    keep_failed: Retention,
    tries_max: u16,
    backoff: Backoff,
    keep_input: KeepInput,
    late_effect_max: Duration,
}

/// How long an intent that carries its input waits between two tries: the first pause, doubled with every
/// further one, up to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first try.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Backoff {
    /// The pause after so many tries.
    pub(crate) fn after(self, tries: u16) -> Duration {
        let doublings = u32::from(tries.saturating_sub(1)).min(30);
        self.min.saturating_mul(1 << doublings).min(self.max)
    }
}

/// What becomes of the input when an intent is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepInput {
    /// It is dropped: an ask that comes again brings it along.
    UntilDone,
    /// It is kept for as long as the receipt.
    WithReceipt,
}

/// What a duplicate gets while the first one is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// It waits for the first one's outcome, at most this long.
    Wait(Duration),
    /// It is refused at once, with a hint when to come back.
    Conflict,
}

/// What a failed outcome means for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The failure is the answer: it is kept and replayed.
    Replay,
    /// The failure is reported and forgotten: the same key may be tried again.
    Retry,
}

/// What happens when the effect may or may not have happened: the owner died, was dropped, lost its
/// lease, or said so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Never run again by itself: held until somebody settles it.
    Hold,
    /// Run again, with a higher fence. For work that is safe to repeat, or that hands the fence or a
    /// child key to whoever has the effect.
    Retry,
}

/// What a key past its retention gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpired {
    /// It is a new intent.
    Run,
    /// It is refused for as long as its tombstone is kept.
    Refuse(Retention),
}

/// How long a receipt is kept and honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// This long.
    For(Duration),
    /// For ever.
    Forever,
}

impl Retention {
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
            keep_succeeded: DAY,
            keep_failed: DAY,
            tries_max: 5,
            backoff: Backoff { min: Duration::from_secs(1), max: Duration::from_secs(300) },
            keep_input: KeepInput::UntilDone,
            late_effect_max: Duration::ZERO,
        }
    }

    /// For messages and webhooks: kept 7 days; a failure or a crash frees the key for the redelivery
    /// that the queue will make; a duplicate is turned away at once.
    pub fn queue() -> Self {
        const WEEK: Retention = Retention::For(Duration::from_hours(24 * 7));
        Self {
            lease: Duration::from_secs(60),
            on_duplicate: OnDuplicate::Conflict,
            on_failure: OnFailure::Retry,
            on_unknown: OnUnknown::Retry,
            on_expired: OnExpired::Run,
            keep_succeeded: WEEK,
            keep_failed: WEEK,
            ..Self::http()
        }
    }

    /// For money: kept for ever, a failure is the answer, an unknown outcome is held.
    pub fn ledger() -> Self {
        Self { keep_succeeded: Retention::Forever, keep_failed: Retention::Forever, ..Self::http() }
    }

    /// Sets how long a claim lasts between renewals, and so how long a dead owner blocks its key.
    pub fn lease(mut self, lease: Duration) -> Result<Self> {
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(Error::invalid(format!(
                "a lease of {lease:?} is not between {LEASE_MIN:?} and {LEASE_MAX:?}"
            )));
        }
        self.lease = lease;
        Ok(self)
    }

    /// Sets what a duplicate gets while the first one runs.
    pub fn on_duplicate(mut self, rule: OnDuplicate) -> Result<Self> {
        if let OnDuplicate::Wait(at_most) = rule
            && (at_most.is_zero() || at_most > WAIT_MAX)
        {
            return Err(Error::invalid(format!(
                "a wait of at most {at_most:?} is not between 1 ns and {WAIT_MAX:?}; not waiting at all is OnDuplicate::Conflict"
            )));
        }
        self.on_duplicate = rule;
        Ok(self)
    }

    /// Sets what a failed outcome means for the key.
    pub fn on_failure(mut self, rule: OnFailure) -> Self {
        self.on_failure = rule;
        self
    }

    /// Sets what happens when nobody can tell whether the effect happened.
    pub fn on_unknown(mut self, rule: OnUnknown) -> Self {
        self.on_unknown = rule;
        self
    }

    /// Sets what a key past its retention gets.
    pub fn on_expired(mut self, rule: OnExpired) -> Result<Self> {
        if let OnExpired::Refuse(keep) = rule {
            check_retention("a tombstone", keep)?;
        }
        self.on_expired = rule;
        Ok(self)
    }

    /// Sets how long every outcome is kept.
    pub fn keep(self, retention: Retention) -> Result<Self> {
        self.keep_succeeded(retention)?.keep_failed(retention)
    }

    /// Sets how long a success is kept.
    pub fn keep_succeeded(mut self, retention: Retention) -> Result<Self> {
        check_retention("a success", retention)?;
        self.keep_succeeded = retention;
        Ok(self)
    }

    /// Sets how long a failure is kept.
    pub fn keep_failed(mut self, retention: Retention) -> Result<Self> {
        check_retention("a failure", retention)?;
        self.keep_failed = retention;
        Ok(self)
    }

    /// Sets how often an intent that carries its input is tried before it is dead: at least once.
    pub fn tries_max(mut self, tries: u16) -> Result<Self> {
        if !(1..=TRIES_MAX).contains(&tries) {
            return Err(Error::invalid(format!("{tries} tries are not between 1 and {TRIES_MAX}")));
        }
        self.tries_max = tries;
        Ok(self)
    }

    /// Sets how long an intent that carries its input waits between two tries.
    pub fn backoff(mut self, backoff: Backoff) -> Result<Self> {
        if backoff.min > backoff.max || backoff.max > BACKOFF_MAX {
            return Err(Error::invalid(format!(
                "a pause of {:?} to {:?} between tries does not grow up to at most {BACKOFF_MAX:?}",
                backoff.min, backoff.max
            )));
        }
        self.backoff = backoff;
        Ok(self)
    }

    /// Sets what becomes of the input when the intent is done.
    pub fn keep_input(mut self, rule: KeepInput) -> Self {
        self.keep_input = rule;
        self
    }

    /// Sets how long after its owner has last had the lease an effect can still happen: what was sent before
    /// may be on its way. Nobody is believed before then that it did not happen.
    pub fn late_effect_max(mut self, late: Duration) -> Result<Self> {
        if late > BACKOFF_MAX {
            return Err(Error::invalid(format!(
                "an effect cannot be {late:?} late; at most {BACKOFF_MAX:?} is allowed for"
            )));
        }
        self.late_effect_max = late;
        Ok(self)
    }

    /// How often an intent that carries its input is tried.
    pub fn tries(&self) -> u16 {
        self.tries_max
    }

    /// How long it waits between two tries.
    pub fn backoff_rule(&self) -> Backoff {
        self.backoff
    }

    /// What becomes of the input when the intent is done.
    pub fn input_rule(&self) -> KeepInput {
        self.keep_input
    }

    /// How long an effect can happen after its owner has last had the lease.
    pub fn late_effect(&self) -> Duration {
        self.late_effect_max
    }

    /// How long a claim lasts between renewals.
    pub fn lease_duration(&self) -> Duration {
        self.lease
    }

    /// What a duplicate gets while the first one runs.
    pub fn duplicate_rule(&self) -> OnDuplicate {
        self.on_duplicate
    }

    /// What a failed outcome means for the key.
    pub fn failure_rule(&self) -> OnFailure {
        self.on_failure
    }

    /// What happens when nobody can tell whether the effect happened.
    pub fn unknown_rule(&self) -> OnUnknown {
        self.on_unknown
    }

    /// What a key past its retention gets.
    pub fn expired_rule(&self) -> OnExpired {
        self.on_expired
    }

    /// How long an outcome with this verdict is kept.
    pub fn retention(&self, verdict: Verdict) -> Retention {
        match verdict {
            Verdict::Succeeded => self.keep_succeeded,
            Verdict::Failed => self.keep_failed,
        }
    }

    /// How long this outcome is kept: by its own word, or by its verdict.
    pub(crate) fn retention_of(&self, outcome: &Outcome) -> Retention {
        outcome.retention().unwrap_or_else(|| self.retention(outcome.verdict()))
    }
}

pub(crate) fn check_retention(what: &str, retention: Retention) -> Result<()> {
    match retention {
        Retention::For(duration) if duration < Duration::from_millis(1) => {
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
