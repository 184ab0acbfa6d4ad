//! The clock of stores whose time is this machine's. A wall clock that jumps ahead would end every retention at once, and
//! a retry would run again. This one goes by elapsed time: within a process a jump changes nothing, and across a restart
//! the last time that was seen counts until the wall clock has had time to be corrected.
//!
//! ```text
//! opened, the wall clock at most 10 minutes ahead of the last time seen    the wall clock's time
//! further ahead: the process was away, or the clock is wrong               the last time seen, for a minute; then the wall clock's
//! behind: the clock was set back, or is at 1970                            the last time seen
//! from then on                                                             elapsed time; a jump is logged and counted
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use onceward::{Clock, SystemClock};

/// A difference to the wall clock that grew by more than this is a jump.
pub(crate) const JUMP_US: u64 = 10 * 60 * 1_000_000;
/// How long nothing falls due after an opening with a wall clock far ahead.
pub(crate) const SETTLE_US: u64 = 60 * 1_000_000;
/// How often the wall clock is looked at.
const LOOK_EVERY_US: u64 = 1_000_000;

/// Jumps in this process.
static JUMPS: AtomicU64 = AtomicU64::new(0);

/// How often this machine's wall clock has jumped by more than ten minutes while this process had a store open, or before
/// it opened one again. Stores that go by this machine's clock (embedded and memory) are not affected; it is a sign that
/// something is wrong with the machine.
pub fn clock_jumps() -> u64 {
    JUMPS.load(Ordering::Relaxed)
}

/// Counts a jump that another clock has noticed.
#[cfg(feature = "sqlite")]
pub(crate) fn count_jump() {
    JUMPS.fetch_add(1, Ordering::Relaxed);
}

/// A clock that never jumps.
pub(crate) struct SteadyClock {
    wall: Arc<dyn Clock>,
    elapsed: Arc<dyn Clock>,
    /// The time when `elapsed` was zero.
    base_us: AtomicU64,
    /// The wall clock, minus this clock, when it was last looked at.
    ahead_us: AtomicI64,
    /// When to look at the wall clock again, in elapsed time.
    look_at_us: AtomicU64,
    /// When the wall clock is believed, in elapsed time; `u64::MAX` if there is nothing to believe.
    settle_at_us: AtomicU64,
}

/// Time since the process began to count.
struct Elapsed(Instant);

impl Clock for Elapsed {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl SteadyClock {
    /// Begins at the wall clock's time.
    pub(crate) fn starting_now() -> Self {
        Self::after(0)
    }

    /// Continues after a time that was seen before; 0 for none.
    pub(crate) fn after(last_seen_us: u64) -> Self {
        Self::of(Arc::new(SystemClock), Arc::new(Elapsed(Instant::now())), last_seen_us)
    }

    fn of(wall: Arc<dyn Clock>, elapsed: Arc<dyn Clock>, last_seen_us: u64) -> Self {
        let (wall_us, elapsed_us) = (wall.now_us(), elapsed.now_us());
        let ahead_us = difference(wall_us, last_seen_us);
        let is_far_ahead = last_seen_us > 0 && ahead_us > difference(JUMP_US, 0);
        let is_behind = wall_us < last_seen_us;
        let now_us = if is_far_ahead { last_seen_us } else { wall_us.max(last_seen_us) };
        if is_behind {
            JUMPS.fetch_add(1, Ordering::Relaxed);
            let seconds = -ahead_us / 1_000_000;
            tracing::warn!(
                seconds,
                "the clock of this machine is behind the latest recorded time; time continues from there"
            );
        } else if is_far_ahead {
            let seconds = ahead_us / 1_000_000;
            tracing::info!(seconds, "the last time seen is long ago; nothing falls due for a minute");
        }
        Self {
            base_us: AtomicU64::new(now_us.saturating_sub(elapsed_us)),
            ahead_us: AtomicI64::new(difference(wall_us, now_us)),
            look_at_us: AtomicU64::new(elapsed_us + LOOK_EVERY_US),
            settle_at_us: AtomicU64::new(if is_far_ahead { elapsed_us + SETTLE_US } else { u64::MAX }),
            wall,
            elapsed,
        }
    }

    /// Compares with the wall clock. Rare, and harmless if two threads do it at once.
    #[cold]
    fn compare_with_wall_clock(&self, elapsed_us: u64) {
        self.look_at_us.store(elapsed_us + LOOK_EVERY_US, Ordering::Relaxed);
        let base_us = self.base_us.load(Ordering::Relaxed);
        let ahead_us = difference(self.wall.now_us(), base_us + elapsed_us);
        let before_us = self.ahead_us.swap(ahead_us, Ordering::Relaxed);
        if before_us.abs_diff(ahead_us) > JUMP_US {
            JUMPS.fetch_add(1, Ordering::Relaxed);
            let seconds = (ahead_us - before_us) / 1_000_000;
            tracing::warn!(seconds, "the clock of this machine has jumped; receipts keep their time");
        }
        if elapsed_us >= self.settle_at_us.load(Ordering::Relaxed) {
            self.settle_at_us.store(u64::MAX, Ordering::Relaxed);
            if let Ok(skipped_us @ 1..) = u64::try_from(ahead_us) {
                self.base_us.store(base_us + skipped_us, Ordering::Relaxed);
                self.ahead_us.store(0, Ordering::Relaxed);
                tracing::info!(
                    seconds = skipped_us / 1_000_000,
                    "the clock of this machine is believed again"
                );
            }
        }
    }
}

impl Clock for SteadyClock {
    fn now_us(&self) -> u64 {
        let elapsed_us = self.elapsed.now_us();
        if elapsed_us >= self.look_at_us.load(Ordering::Relaxed) {
            self.compare_with_wall_clock(elapsed_us);
        }
        self.base_us.load(Ordering::Relaxed) + elapsed_us
    }
}

fn difference(one_us: u64, other_us: u64) -> i64 {
    let bounded = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
    bounded(one_us) - bounded(other_us)
}

#[cfg(test)]
#[path = "steady_clock_test.rs"]
mod tests;
