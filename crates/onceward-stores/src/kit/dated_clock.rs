//! The clock of stores that have none: elapsed time of this machine, kept to the `Date` field of the service's answers.
//!
//! A `Date` counts whole seconds, and was made between the call and its answer. So it bounds what the service's clock
//! showed when this machine had counted `elapsed`:
//!
//! ```text
//! Date - elapsed at the answer  ≤  offset  <  Date + 1 s - elapsed at the call
//! ```
//!
//! The clock goes by the highest lower bound that was seen, as long as the last upper bound allows it. It is then behind
//! the service's by at most a second and a round trip, soon by much less, and it never goes back.
//!
//! A process that was stopped (a virtual machine that was paused and continued) does not know it before the next answer.
//! So a write carries a [`Stamp`], and its own answer says whether the stamp was right: see [`DatedClock::check`].

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::{Error, ErrorKind, Record, Result, State};

/// The difference between the clocks of two processes that is allowed for: the grain of the `Date` field, and the round
/// trip in which it was made.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(2);
const MARGIN_US: i64 = 2 * SECOND_US;
/// What the clocks of two servers of one service may differ by: the margin without the grain of the `Date` field.
const SERVERS_DIFFER_MAX_US: i64 = MARGIN_US - SECOND_US;
const SECOND_US: i64 = 1_000_000;
/// A correction beyond this is worth a line in the log: the machine was paused, or the clock of the service was set.
const JUMP_US: i64 = 10 * SECOND_US;

/// See the module.
#[derive(Default)]
pub(crate) struct DatedClock(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The time of the service minus the elapsed time, as the clock shows it; `None` before the first `Date`.
    offset_us: Option<i64>,
    /// What the last call has told.
    last: Option<Bounds>,
    /// The latest time that was shown.
    shown_us: u64,
}

/// What one answer says of the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// When the call was made, in microseconds of elapsed time.
    asked_at: i64,
    least_us: i64,
    most_us: i64,
}

/// The time that a write was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) now_us: u64,
    elapsed_us: i64,
}

/// Whether a stamp was right, by the answer to the call that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It was behind the service's clock by no more than the margin.
    Right,
    /// It was behind by more: what it says falls due too early.
    Behind,
    /// The answer took too long to tell, or had no `Date`.
    Unproven,
}

impl DatedClock {
    /// Elapsed time, to be read before a call. It has the same zero in the whole process, and counts while the machine is
    /// suspended.
    pub(crate) fn elapsed_us() -> i64 {
        i64::try_from(elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Learns from the `Date` of an answer to a call that began at `called_us` of elapsed time.
    pub(crate) fn learn(&self, date: Option<&[u8]>, called_us: i64) {
        let date = date.and_then(|date| std::str::from_utf8(date).ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        if let Some(since) = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok()) {
            self.learn_at(since.as_secs(), called_us, Self::elapsed_us());
        }
    }

    fn learn_at(&self, date_s: u64, called_us: i64, answered_us: i64) {
        let second_began_us = i64::try_from(date_s).unwrap_or(i64::MAX / SECOND_US).saturating_mul(SECOND_US);
        let bounds = Bounds {
            asked_at: called_us,
            least_us: second_began_us.saturating_sub(answered_us),
            most_us: second_began_us.saturating_add(SECOND_US).saturating_sub(called_us),
        };
        let mut known = self.lock();
        if known.last.is_none_or(|last| last.asked_at <= called_us) {
            known.last = Some(bounds);
        }
        let Some(before) = known.offset_us else {
            known.offset_us = Some(bounds.least_us);
            return;
        };
        let now = before.max(bounds.least_us).min(bounds.most_us);
        known.offset_us = Some(now);
        drop(known);
        let moved_us = now.saturating_sub(before);
        if moved_us > JUMP_US {
            tracing::warn!(
                seconds = moved_us / SECOND_US,
                "the clock of the service has jumped, or this machine was paused; due times follow the service"
            );
        } else if moved_us < -SERVERS_DIFFER_MAX_US {
            tracing::error!(
                seconds = -moved_us / SECOND_US,
                "the clock of the service has gone back, or its servers' clocks differ; synchronise them: processes that ask different servers would end each other's leases early"
            );
        }
    }

    /// Fails unless an answer had a `Date`: without one there is no time that several processes could go by.
    pub(crate) fn require(&self, service: &str) -> Result<()> {
        if self.lock().offset_us.is_some() {
            return Ok(());
        }
        let detail = format!(
            "the answers of {service} have no Date field, so there is no clock to go by; if a proxy in between removes it, let it pass"
        );
        Err(Error::new(ErrorKind::Unfit, detail))
    }

    /// What the last answer has said.
    #[cfg(feature = "etcd")]
    pub(crate) fn last(&self) -> Option<Bounds> {
        self.lock().last
    }

    /// The time in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        self.stamp().now_us
    }

    /// The time for a write.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp_at(Self::elapsed_us())
    }

    fn stamp_at(&self, elapsed_us: i64) -> Stamp {
        let mut known = self.lock();
        // No store is open before the first `Date` was seen.
        let offset_us = known.offset_us.unwrap_or(i64::MIN);
        let now_us = u64::try_from(elapsed_us.saturating_add(offset_us)).unwrap_or(0);
        known.shown_us = known.shown_us.max(now_us);
        Stamp { now_us: known.shown_us, elapsed_us }
    }

    /// Whether the stamp of a write was right. To be asked when its answer is there.
    pub(crate) fn check(&self, stamp: Stamp) -> Checked {
        let last = self.lock().last;
        let Some(last) = last.filter(|last| last.asked_at >= stamp.elapsed_us) else {
            return Checked::Unproven;
        };
        let offset_us = i64::try_from(stamp.now_us).unwrap_or(i64::MAX).saturating_sub(stamp.elapsed_us);
        if last.most_us.saturating_sub(offset_us) <= MARGIN_US {
            Checked::Right
        } else if last.least_us.saturating_sub(offset_us) > MARGIN_US {
            Checked::Behind
        } else {
            Checked::Unproven
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checked {
    /// Whether a record that was written with this stamp must be written again with the time as it is known now.
    pub(crate) fn must_be_repeated(self, record: &Record) -> bool {
        self == Self::Behind && record.due_in.is_some()
    }

    /// Whether a claim that was written with this stamp counts. The end of a lease decides who may run; where the stamp of
    /// anything else is not proven, it is not known to be wrong, and no more than its retention depends on it.
    pub(crate) fn is_enough(self, record: &Record) -> bool {
        record.due_in.is_none()
            || match self {
                Self::Right => true,
                Self::Unproven => record.state != State::Held,
                Self::Behind => false,
            }
    }

    /// The error for a write that is there, and whose stamp is not known to be right.
    pub(crate) fn error(service: &str) -> Error {
        let detail = format!(
            "{service} answered too late, or without a Date field: when this falls due there is not known; it is read again"
        );
        Error::new(ErrorKind::Unavailable, detail).maybe_applied()
    }
}

/// By how much the clocks of two servers certainly differ, if that is more than is allowed for.
#[cfg(feature = "etcd")]
pub(crate) fn too_far_apart(one: Bounds, other: Bounds) -> Option<Duration> {
    let apart_us = one.least_us.saturating_sub(other.most_us).max(other.least_us.saturating_sub(one.most_us));
    (apart_us > SERVERS_DIFFER_MAX_US).then(|| Duration::from_micros(apart_us.unsigned_abs()))
}

#[cfg(target_os = "linux")]
fn elapsed() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn elapsed() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

#[cfg(test)]
#[path = "dated_clock_test.rs"]
mod tests;
