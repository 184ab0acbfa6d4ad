//! The adaptive limit of work in flight: AIMD over measured latency. It reads no clock.
//!
//! ```text
//! of the answers since the last change   more than a tenth are slow ─▶ limit × 0.5 … 0.9, by how slow they are
//! as many as the limit began near it     and the others are not ─▶ limit + 1 + limit/100
//! four times as many as the limit        and neither of these ─▶ they are forgotten
//! ```
//!
//! A tenth is that of all answers, and of no fewer than fifty or the limit: a route of which one answer in a hundred is slow, which is
//! its nature and no overload, is never cut. Only what began near the limit tells whether the limit could be higher.
//! After a change, answers to what began before it are ignored: they tell of the previous limit. Until the first cut
//! the limit doubles, so that a restart under honest load refuses little.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and limits are far below the precision of a float, and never negative"
)]

use std::time::Duration;

use http::StatusCode;

/// The limit before anything was measured: low, because each doubling is measured, and a limit that is too high only
/// when its queue has been worked off.
const START: f64 = 20.0;
/// The largest limit. Other bounds are reached before.
const MOST: f64 = 1e6;
/// The fewest answers after which the limit grows.
const WINDOW_MIN: usize = 10;
/// The part that is slow is at least that of this many: a few slow answers in a row are chance.
const SLOW_OF_MIN: usize = 50;
/// A window is slow if more than one answer in this many is.
const SLOW_PART: usize = 10;
/// The strongest and the weakest cut.
const CUT: std::ops::RangeInclusive<f64> = 0.5..=0.9;

/// From this part of the limit on, work that begins tells what the limit does.
const NEAR: f64 = 0.75;

/// Answers are forgotten if there are this many times as many as the limit: what is long past tells nothing of now.
const FORGOTTEN_AFTER: usize = 4;

/// When something began, and under which load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Duration,
    near_limit: bool,
}

/// What an answer says about the load of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Its latency tells.
    ByLatency,
    /// The service itself says that it has too much to do, or did not answer in time.
    TooMuch,
}

impl Load {
    /// `None` if it says nothing: a failure may be quick.
    pub(super) fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Some(Self::TooMuch)
            }
            status if status.is_server_error() => None,
            _ => Some(Self::ByLatency),
        }
    }
}

#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    target: Duration,
    least: f64,
    limit: f64,
    /// Whether it has never been cut.
    rising: bool,
    changed_at: Option<Duration>,
    window: Window,
}

/// The answers since the last change.
#[derive(Debug, Default)]
struct Window {
    answers: usize,
    /// Those to what began near the limit.
    near: usize,
    slow: usize,
    /// How long the slow ones took.
    slow_sum: Duration,
    /// The most that was in flight.
    peak: usize,
}

impl AdaptiveLimit {
    pub(super) fn new(target: Duration, least: usize) -> Self {
        let least = (least as f64).clamp(1.0, MOST);
        let limit = START.max(least);
        Self { target, least, limit, rising: true, changed_at: None, window: Window::default() }
    }

    /// How much may be in flight now; never zero.
    pub(super) fn current(&self) -> usize {
        self.limit as usize
    }

    /// Something begins, and with it this much is in flight.
    pub(super) fn begin(&mut self, in_flight: usize, now: Duration) -> Begun {
        self.window.peak = self.window.peak.max(in_flight);
        Begun { at: now, near_limit: in_flight as f64 >= self.limit * NEAR }
    }

    /// An answer to what began then.
    pub(super) fn answered(&mut self, load: Load, begun: Begun, now: Duration) {
        if self.changed_at.is_some_and(|changed_at| begun.at < changed_at) {
            return;
        }
        let latency = now.saturating_sub(begun.at);
        let window = &mut self.window;
        window.answers += 1;
        window.near += usize::from(begun.near_limit);
        if load == Load::TooMuch || latency > self.target {
            window.slow += 1;
            window.slow_sum = window.slow_sum.saturating_add(latency.max(self.target));
        }
        let needed = self.limit as usize;
        let needed = needed.max(WINDOW_MIN);
        // Slow answers come last: there is no need to wait for the whole window.
        if window.slow * SLOW_PART > needed.max(SLOW_OF_MIN).max(window.answers) {
            self.cut(now);
        } else if window.near >= needed {
            self.grow(now);
        } else if window.answers >= needed.saturating_mul(FORGOTTEN_AFTER) {
            *window = Window::default();
        }
    }

    fn cut(&mut self, now: Duration) {
        let Window { slow, slow_sum, peak, .. } = std::mem::take(&mut self.window);
        // Far below the limit, it is not the limit that makes the service slow or quick.
        if peak as f64 * 2.0 < self.limit {
            return;
        }
        let slow = slow_sum.as_secs_f64() / slow as f64;
        let factor = (self.target.as_secs_f64() / slow).clamp(*CUT.start(), *CUT.end());
        self.limit = (self.limit.min(peak as f64) * factor).max(self.least);
        self.rising = false;
        self.changed_at = Some(now);
    }

    fn grow(&mut self, now: Duration) {
        self.window = Window::default();
        let step = if self.rising { self.limit } else { 1.0 + self.limit / 100.0 };
        self.limit = (self.limit + step).min(MOST);
        self.changed_at = Some(now);
    }
}

#[cfg(test)]
#[path = "limit_test.rs"]
mod tests;
