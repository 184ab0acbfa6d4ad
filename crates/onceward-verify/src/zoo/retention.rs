//! Services that forget receipts too early.

use std::time::Duration;

use super::careful::Habits;

/// Answers are kept for a fraction of what is promised.
pub(super) struct ForgetsEarly;

impl Habits for ForgetsEarly {
    fn retention(&self) -> Duration {
        Duration::from_millis(500)
    }
}

/// A receipt past its retention is passed over, not claimed: all who ask at that moment run.
pub(super) struct ExpiredUnclaimed;

impl Habits for ExpiredUnclaimed {
    fn retention(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn claims_expired(&self) -> bool {
        false
    }
}

/// Receipts are kept in a bounded cache: a request whose receipt was evicted runs again.
pub(super) struct Evicts;

impl Habits for Evicts {
    fn answers_max(&self) -> usize {
        6
    }
}
