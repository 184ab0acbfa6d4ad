//! The limits of a call: number of tries, timeouts, backoff, retry budget and circuit breaker.

use std::time::Duration;

use super::backoff::JitteredBackoff;
use super::breaker::BreakerConfig;
use super::budget::BudgetConfig;
use super::error::{Error, Result};

/// The limits of all calls of a client or layer. They are checked when the client or layer is built.
///
/// ```
/// use onceward_client::{Client, RetryConfig};
/// use std::time::Duration;
///
/// let limits = RetryConfig::default().with_tries_max(4).with_call_at_most(Duration::from_secs(20));
/// let client = Client::builder().with_retry_config(limits).build()?;
/// # Ok::<(), onceward_client::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryConfig {
    /// Tries of one call, the first included: 10. Waiting for an earlier request that is still running is not
    /// counted: it is not a failure.
    pub tries_max: u32,
    /// How long one try may take, from the connection to the last byte of the answer: 30 s.
    pub try_at_most: Duration,
    /// How long a call may take in all: 2 min. No try outlasts it, and no pause begins that would end after it.
    pub call_at_most: Duration,
    /// The pauses between tries.
    pub backoff: JitteredBackoff,
    /// The upper bound of a `Retry-After`: 5 min. A longer one is shortened to this.
    pub retry_after_max: Duration,
    /// How long a server is assumed to honour a key if it does not send `Idempotency-Expires`, counted
    /// from before the first try: 24 h. A retry after that could run the request a second time, so it is not
    /// made: the outcome is unknown.
    pub honoured_for: Duration,
    /// How many retries a host may be sent.
    pub budget: BudgetConfig,
    /// When requests to a host are stopped for a while.
    pub breaker: BreakerConfig,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            tries_max: 10,
            try_at_most: Duration::from_secs(30),
            call_at_most: Duration::from_secs(120),
            backoff: JitteredBackoff::default(),
            retry_after_max: Duration::from_secs(300),
            honoured_for: Duration::from_hours(24),
            budget: BudgetConfig::default(),
            breaker: BreakerConfig::default(),
        }
    }
}

impl RetryConfig {
    /// Sets the number of tries of one call, the first included.
    pub fn with_tries_max(mut self, tries: u32) -> Self {
        self.tries_max = tries;
        self
    }

    /// Sets how long one try may take.
    pub fn with_try_at_most(mut self, at_most: Duration) -> Self {
        self.try_at_most = at_most;
        self
    }

    /// Sets how long a call may take in all, pauses included. A single call can have its own limit:
    /// [`Request::at_most`](super::Request::at_most).
    pub fn with_call_at_most(mut self, at_most: Duration) -> Self {
        self.call_at_most = at_most;
        self
    }

    /// Sets the pauses between tries.
    pub fn with_backoff(mut self, backoff: JitteredBackoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the upper bound of a `Retry-After`.
    pub fn with_retry_after_max(mut self, max: Duration) -> Self {
        self.retry_after_max = max;
        self
    }

    /// Sets how long a server is assumed to honour a key if it does not say so. It must not be longer than the
    /// server really keeps keys.
    pub fn with_honoured_for(mut self, honoured_for: Duration) -> Self {
        self.honoured_for = honoured_for;
        self
    }

    /// Sets how many retries a host may be sent.
    pub fn with_budget(mut self, budget: BudgetConfig) -> Self {
        self.budget = budget;
        self
    }

    /// Sets when requests to a host are stopped for a while.
    pub fn with_breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = breaker;
        self
    }

    /// Refuses limits under which no call could succeed, and says which.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = if self.tries_max == 0 {
            Some("tries_max is 0: no try could be made")
        } else if self.try_at_most.is_zero() {
            Some("try_at_most is zero: one try could not take any time")
        } else if self.call_at_most.is_zero() {
            Some("call_at_most is zero: no try could be made; for a single try set tries_max to 1")
        } else if self.backoff.first > self.backoff.longest {
            Some("the backoff's first pause is longer than its longest")
        } else if self.honoured_for.is_zero() {
            Some("honoured_for is zero: no key would be honoured for a second try")
        } else {
            self.breaker.wrong()
        };
        wrong.map_or(Ok(()), |wrong| Err(Error::invalid(wrong)))
    }
}
