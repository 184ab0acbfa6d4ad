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

/// Receipts are kept in a bounded cache: a request whose receipt was evicted runs again.
pub(super) struct Evicts;

impl Habits for Evicts {
    fn answers_max(&self) -> usize {
        6
    }
}
