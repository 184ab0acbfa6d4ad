//! The time of an SQLite file. Several processes of one machine may share it, and their clocks need not agree: one was
//! started before the wall clock jumped, another after it.
//!
//! ```text
//!                       what is due          what is written
//! the clock jumps ahead  by elapsed time      by the wall clock     nothing falls due by a jump,
//! the clock is set back  by the wall clock    by elapsed time       and no other process finds it due too early
//! ```

use std::sync::LazyLock;

use onceward::{Clock, SystemClock};

use crate::kit::now_us;
use crate::kit::steady_clock::SteadyClock;

/// Goes by elapsed time since it was first read, and counts jumps of the wall clock.
static STEADY: LazyLock<SteadyClock> = LazyLock::new(SteadyClock::starting_now);

/// Two readings of the time in microseconds, as signed numbers for SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    /// By which records fall due.
    pub(super) earliest_us: i64,
    /// By which due times are written.
    pub(super) latest_us: i64,
}

impl Now {
    pub(super) fn read() -> Self {
        Self::of(&SystemClock, &*STEADY)
    }

    fn of(wall: &dyn Clock, steady: &dyn Clock) -> Self {
        let signed = |clock| i64::try_from(now_us(clock)).unwrap_or(i64::MAX);
        let (wall, steady) = (signed(wall), signed(steady));
        Self { earliest_us: wall.min(steady), latest_us: wall.max(steady) }
    }
}

#[cfg(test)]
#[path = "now_test.rs"]
mod tests;
