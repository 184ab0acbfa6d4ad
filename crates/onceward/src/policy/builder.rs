//! Changes to a policy. Setters take any value; [`PolicyBuilder::build`] checks all of them.

use std::time::Duration;

use super::{
    BACKOFF_MAX, Backoff, KeepInput, LEASE_MAX, LEASE_MIN, OnDuplicate, OnExpired, OnFailure, OnUnknown,
    Policy, Retention, TRIES_MAX, WAIT_MAX, check_retention,
};
use crate::error::{Error, Result};

/// Builds a [`Policy`] from another one. See [`Policy::to_builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder changes nothing until `build` is called"]
pub struct PolicyBuilder {
    /// Not checked yet.
    policy: Policy,
}

impl From<Policy> for PolicyBuilder {
    fn from(policy: Policy) -> Self {
        Self { policy }
    }
}

impl PolicyBuilder {
    /// Sets how long a claim lasts between renewals: [`LEASE_MIN`] to [`LEASE_MAX`]. A dead owner blocks its
    /// key for this long.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.policy.lease = lease;
        self
    }

    /// Sets what a duplicate gets while the first one runs. A wait is at most [`WAIT_MAX`].
    pub fn with_on_duplicate(mut self, rule: OnDuplicate) -> Self {
        self.policy.on_duplicate = rule;
        self
    }

    /// Sets what a failed outcome means for the key.
    pub fn with_on_failure(mut self, rule: OnFailure) -> Self {
        self.policy.on_failure = rule;
        self
    }

    /// Sets the treatment of unknown outcomes.
    pub fn with_on_unknown(mut self, rule: OnUnknown) -> Self {
        self.policy.on_unknown = rule;
        self
    }

    /// Sets what a key past its retention gets.
    pub fn with_on_expired(mut self, rule: OnExpired) -> Self {
        self.policy.on_expired = rule;
        self
    }

    /// Sets how long every outcome is kept: 1 ms to [`RETENTION_MAX`](super::RETENTION_MAX), or forever.
    pub fn with_retention(self, retention: Retention) -> Self {
        self.with_retention_succeeded(retention).with_retention_failed(retention)
    }

    /// Sets how long a success is kept.
    pub fn with_retention_succeeded(mut self, retention: Retention) -> Self {
        self.policy.retention_succeeded = retention;
        self
    }

    /// Sets how long a failure is kept.
    pub fn with_retention_failed(mut self, retention: Retention) -> Self {
        self.policy.retention_failed = retention;
        self
    }

    /// Sets how often an intent that carries its input is tried before it is dead: 1 to [`TRIES_MAX`] times.
    pub fn with_tries_max(mut self, tries: u16) -> Self {
        self.policy.tries_max = tries;
        self
    }

    /// Sets how long an intent that carries its input waits between two tries: at most [`BACKOFF_MAX`].
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets what becomes of the input when the intent is done.
    pub fn with_keep_input(mut self, rule: KeepInput) -> Self {
        self.policy.keep_input = rule;
        self
    }

    /// Sets how long an effect can still happen after its owner last had the lease: what was sent before may be
    /// on its way. Until then, a settlement as "not done" is refused. At most [`BACKOFF_MAX`].
    pub fn with_late_effect_max(mut self, late: Duration) -> Self {
        self.policy.late_effect_max = late;
        self
    }

    /// Checks everything and builds the policy. Fails if a value is out of its bounds, and says which.
    pub fn build(self) -> Result<Policy> {
        let Policy { lease, on_duplicate, on_expired, tries_max, backoff, late_effect_max, .. } = self.policy;
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(Error::invalid(format!(
                "a lease of {lease:?} is not between {LEASE_MIN:?} and {LEASE_MAX:?}"
            )));
        }
        if let OnDuplicate::Wait(at_most) = on_duplicate
            && (at_most.is_zero() || at_most > WAIT_MAX)
        {
            return Err(Error::invalid(format!(
                "a wait of at most {at_most:?} is not between 1 ns and {WAIT_MAX:?}; not waiting at all is OnDuplicate::Conflict"
            )));
        }
        if let OnExpired::Refuse(keep) = on_expired {
            check_retention("a tombstone", keep)?;
        }
        check_retention("a success", self.policy.retention_succeeded)?;
        check_retention("a failure", self.policy.retention_failed)?;
        if !(1..=TRIES_MAX).contains(&tries_max) {
            return Err(Error::invalid(format!("{tries_max} tries are not between 1 and {TRIES_MAX}")));
        }
        if backoff.min > backoff.max || backoff.max > BACKOFF_MAX {
            return Err(Error::invalid(format!(
                "a pause of {:?} to {:?} between tries does not grow up to at most {BACKOFF_MAX:?}",
                backoff.min, backoff.max
            )));
        }
        if late_effect_max > BACKOFF_MAX {
            return Err(Error::invalid(format!(
                "an effect cannot be {late_effect_max:?} late; at most {BACKOFF_MAX:?} is allowed for"
            )));
        }
        Ok(self.policy)
    }
}
