//! The time of an SQLite file. Several processes of one machine may share it, and their clocks need not agree: one was
//! started before the wall clock jumped, another after it.
//!
//! ```text
//!                       what is due          what is written
//! the clock jumps ahead  by elapsed time      by the wall clock     nothing falls due by a jump,
//! the clock is set back  by the wall clock    by elapsed time       and no other process finds it due too early
//! ```
//!
//! The latest time is recorded with the writes, once a second at most, and read when a file is opened:
//!
//! ```text
//! the clock is behind it            elapsed time continues from it: the clock was set back, or is at 1970
//! the clock is far ahead of it      nothing falls due for a minute: the clock is wrong, or nobody was here for long.
//!                                   A process that opens the file later than that minute believes the clock at once
//! ```
//!
//! What is read from one file counts for all files of the process: a transaction of the caller's own does not say which file
//! it is in. A minute in which nothing falls due harms no other file.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use onceward::{Clock, SystemClock};
use rusqlite::{Connection, OptionalExtension};

use crate::kit::now_us;
use crate::kit::steady_clock::{JUMP_US, SETTLE_US, SteadyClock, count_jump};

/// Goes by elapsed time since it was first read, and counts jumps of the wall clock.
static STEADY: LazyLock<SteadyClock> = LazyLock::new(SteadyClock::starting_now);
/// What the files that were opened have told.
static RECORDED: Mutex<Recorded> = Mutex::new(Recorded { ahead_us: 0, distrust: None });

/// How much newer a time must be to be recorded.
const RECORD_EVERY_US: i64 = 1_000_000;
const FAR_US: i64 = JUMP_US.cast_signed();
const DISTRUST_US: i64 = SETTLE_US.cast_signed();
/// A distrust of more than an hour ago was another one.
const SAME_DISTRUST_US: i64 = 60 * DISTRUST_US;

/// Readings of the time in microseconds, as signed numbers for SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    /// By which records fall due.
    pub(super) earliest_us: i64,
    /// By which due times are written.
    pub(super) latest_us: i64,
    /// What is recorded as the latest time that was seen.
    seen_us: i64,
    /// Whether the clock is distrusted.
    is_distrusted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Recorded {
    /// What is added to elapsed time, because the clock was behind the recorded time when this process began.
    ahead_us: i64,
    distrust: Option<Distrust>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distrust {
    /// From elapsed time to the recorded time and what has passed since: negative.
    behind_us: i64,
    /// When it ends, in elapsed time.
    until_us: i64,
}

/// What a recorded time says of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    InOrder,
    /// By this number of microseconds.
    Behind(i64),
    FarAhead(i64),
}

impl Now {
    pub(super) fn read() -> Self {
        let recorded = *recorded();
        Self::of(&SystemClock, &*STEADY, recorded)
    }

    fn of(wall: &dyn Clock, steady: &dyn Clock, recorded: Recorded) -> Self {
        let (wall, steady) = (signed(wall), signed(steady).saturating_add(recorded.ahead_us));
        let distrust = recorded.distrust.filter(|distrust| steady < distrust.until_us);
        let seen_us = distrust.map_or(steady, |distrust| steady.saturating_add(distrust.behind_us));
        Self {
            earliest_us: wall.min(seen_us),
            latest_us: wall.max(steady),
            seen_us,
            is_distrusted: distrust.is_some(),
        }
    }

    /// What to record, if that was recorded before.
    pub(super) fn to_record(self, recorded_us: i64) -> Option<(i64, bool)> {
        let is_newer = self.seen_us.saturating_sub(recorded_us) >= RECORD_EVERY_US;
        is_newer.then_some((self.seen_us, self.is_distrusted))
    }
}

impl Recorded {
    /// Learns the time that is recorded in a file which is opened, and when the clock was distrusted for it.
    fn learn(
        &mut self,
        wall: &dyn Clock,
        steady: &dyn Clock,
        seen_us: i64,
        distrusted_us: Option<i64>,
    ) -> Found {
        let wall = signed(wall);
        let elapsed = signed(steady);
        if seen_us == 0 {
            return Found::InOrder;
        }
        if wall < seen_us {
            self.ahead_us = self.ahead_us.max(seen_us.saturating_sub(elapsed));
            return Found::Behind(seen_us.saturating_sub(wall));
        }
        let steady = elapsed.saturating_add(self.ahead_us);
        let ahead_us = wall.min(steady).saturating_sub(seen_us);
        let since_us = distrusted_us.map(|distrusted| wall.saturating_sub(distrusted));
        if ahead_us <= FAR_US
            || since_us.is_some_and(|since| (DISTRUST_US..SAME_DISTRUST_US).contains(&since))
        {
            return Found::InOrder;
        }
        let behind_us =
            seen_us.saturating_sub(steady).min(self.distrust.map_or(0, |distrust| distrust.behind_us));
        self.distrust = Some(Distrust { behind_us, until_us: steady.saturating_add(DISTRUST_US) });
        Found::FarAhead(ahead_us)
    }
}

/// Reads the time that is recorded in a file which is opened.
pub(super) fn learn(connection: &Connection) -> rusqlite::Result<()> {
    let read = "SELECT seen, distrusted FROM onceward_clock";
    let row = connection.query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((seen_us, distrusted_us)) = row else { return Ok(()) };
    let found = recorded().learn(&SystemClock, &*STEADY, seen_us, distrusted_us);
    match found {
        Found::InOrder => {}
        Found::Behind(by_us) if by_us < FAR_US => {}
        Found::Behind(by_us) => {
            count_jump();
            let seconds = by_us / 1_000_000;
            tracing::warn!(
                seconds,
                "the clock of this machine is behind the latest time recorded in the SQLite file; time continues from there"
            );
        }
        Found::FarAhead(by_us) => {
            let seconds = by_us / 1_000_000;
            tracing::warn!(
                seconds,
                "the latest time recorded in the SQLite file is long ago; nothing in it falls due for a minute"
            );
            let wall = signed(&SystemClock);
            let distrust = "UPDATE onceward_clock SET distrusted = ?1
                WHERE distrusted IS NULL OR ?1 NOT BETWEEN distrusted AND distrusted + ?2";
            connection.execute(distrust, [wall, SAME_DISTRUST_US])?;
        }
    }
    Ok(())
}

fn signed(clock: &dyn Clock) -> i64 {
    i64::try_from(now_us(clock)).unwrap_or(i64::MAX)
}

fn recorded() -> MutexGuard<'static, Recorded> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "now_test.rs"]
mod tests;
