//! The limits of a call: number of tries, timeouts, backoff, retry budget and circuit breaker.

use std::time::Duration;

use super::backoff::Backoff;
use super::breaker::BreakerTerms;
use super::budget::BudgetTerms;

/// The limits of all calls of a client or layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Tries of one call, the first included. Waiting for an earlier request that is still running is not
    /// counted: it is not a failure.
    pub tries_max: u32,
    /// How long one try may take, from the connection to the last byte of the answer.
    pub try_at_most: Duration,
    /// How long a call may take in all. No try outlasts it, and no pause begins that would end after it.
    pub call_at_most: Duration,
    /// The pauses between tries.
    pub backoff: Backoff,
    /// The upper bound of a `Retry-After`; a longer one is shortened to this.
    pub retry_after_max: Duration,
    /// How long a server is assumed to honour a key if it does not send `Idempotency-Expires`, counted
    /// from before the first try. A retry after that could run the request a second time, so it is not
    /// made: the outcome is unknown.
    pub honoured_for: Duration,
    /// How many retries a host may be sent.
    pub budget: BudgetTerms,
    /// When requests to a host are stopped for a while.
    pub breaker: BreakerTerms,
}

impl Default for RetryConfig {
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
