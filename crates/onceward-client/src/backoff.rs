//! How long to wait before a retry: exponential with full jitter, or what the server asked for.

use std::time::Duration;

use super::random::Chance;

/// Exponential backoff with full jitter: the pause before the n-th retry is uniformly distributed between
/// zero and `first · 2ⁿ⁻¹`, at most `longest`. It starts at zero so that clients that failed together do not retry
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JitteredBackoff {
    /// The longest pause before the first retry.
    pub first: Duration,
    /// The longest pause before any retry.
    pub longest: Duration,
}

impl Default for JitteredBackoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(20) }
    }
}

impl JitteredBackoff {
    /// Pauses of up to `first` before the first retry, up to twice as long before each further one, and never longer
    /// than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The longest pause before the n-th retry; the first retry is number 1.
    pub fn ceiling(&self, retry: u32) -> Duration {
        let doublings = retry.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// The pause before the n-th retry.
    pub fn pause(&self, retry: u32, chance: Chance) -> Duration {
        chance.part_of(self.ceiling(retry))
    }

    /// The pause before the n-th retry if the server has asked for `hint`: never shorter than that, plus a random part
    /// of the backoff or of a tenth of the hint, whichever is longer, so that clients with the same hint do not retry
    /// at the same moment.
    pub fn pause_after(&self, retry: u32, hint: Duration, chance: Chance) -> Duration {
        hint.saturating_add(chance.part_of(self.ceiling(retry).max(hint / 10)))
    }
}

#[cfg(test)]
#[path = "backoff_test.rs"]
mod tests;
