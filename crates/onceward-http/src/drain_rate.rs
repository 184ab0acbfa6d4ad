//! When a refused request should come again: after the time that running work and the others that were refused will
//! need, at the rate at which work finishes now. With jitter, so that those refused together do not come back together.
//! It reads no clock.

#![expect(
    clippy::cast_precision_loss,
    reason = "rates and limits are far below the precision of a float, and never negative"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::answer::SOON;

/// The rate is measured over at least this time.
const PERIOD: Duration = Duration::from_secs(1);
/// A measurement over more than this says nothing about now.
const STALE: Duration = Duration::from_secs(10);
/// The longest wait before jitter. A client that waits longer than this has given up anyway.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// How fast work finishes. Finished work costs one addition; the rate is computed for refusals only.
#[derive(Debug, Default)]
pub(crate) struct DrainRate {
    finished: AtomicU64,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    /// When the current period began, and what had finished by then.
    since: Duration,
    finished: u64,
    refused: u64,
    /// Of the last period: finished and refused per second. `None` if there is no recent one.
    per_second: Option<(f64, f64)>,
}

impl DrainRate {
    /// Counts work that has ended.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal while this much is running, and says when to retry. `chance` is from 0 to 1.
    pub(crate) fn retry_after(&self, now: Duration, running: usize, chance: f64) -> Duration {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.refused += 1;
        let elapsed = now.saturating_sub(measured.since);
        // A clock that stands still or goes back never ends a period.
        if elapsed >= PERIOD {
            let finished = self.finished.load(Ordering::Relaxed);
            let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
            measured.per_second = (elapsed <= STALE)
                .then(|| (rate(finished.saturating_sub(measured.finished)), rate(measured.refused)));
            (measured.since, measured.finished, measured.refused) = (now, finished, 0);
        }
        let wait = match measured.per_second {
            None => SOON.as_secs_f64(),
            // If nothing finished in a period, the next one may come at any time.
            Some((finished, refused)) => (running as f64 + refused) / finished.max(1.0),
        };
        let wait = wait.clamp(SOON.as_secs_f64(), RETRY_AFTER_MAX.as_secs_f64());
        Duration::from_secs_f64(wait * (0.5 + chance.clamp(0.0, 1.0)))
    }
}

/// A random number from 0 to 1.
pub(crate) fn chance() -> f64 {
    let mut bytes = [0x80; 4];
    // Without a random source there is no jitter.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
#[path = "drain_rate_test.rs"]
mod tests;
