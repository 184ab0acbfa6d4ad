//! What a caller agrees to: how often, how long, how patiently. Every bound of a call, by name.

use std::time::Duration;

use super::backoff::Backoff;
use super::breaker::BreakerTerms;
use super::budget::BudgetTerms;

/// The terms of all calls of a client or layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Tries of one call, the first included. Waiting out a first one that is still running is not
    /// counted: that is no failure.
    pub tries_max: u32,
    /// How long one try may take, from the connection to the last byte of the answer.
    pub try_at_most: Duration,
    /// How long a call may take in all. No try begins that could not be answered within it, and no
    /// pause is begun that would not end within it.
    pub call_at_most: Duration,
    /// The pauses between tries.
    pub backoff: Backoff,
    /// A longer `Retry-After` is taken for this.
    pub retry_after_max: Duration,
    /// How long a server is taken to honour a key that has not said so itself with
    /// `Idempotency-Expires`, counted from before the first try. A retry after that could run a second
    /// time, so it is not made: the outcome is unknown.
    pub honoured_for: Duration,
    /// How many retries a host may be sent.
    pub budget: BudgetTerms,
    /// When a host is left alone.
    pub breaker: BreakerTerms,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            tries_max: 10,
            try_at_most: Duration::from_secs(30),
            call_at_most: Duration::from_secs(120),
            backoff: Backoff::default(),
            retry_after_max: Duration::from_secs(300),
            honoured_for: Duration::from_hours(24),
            budget: BudgetTerms::default(),
            breaker: BreakerTerms::default(),
        }
    }
}
