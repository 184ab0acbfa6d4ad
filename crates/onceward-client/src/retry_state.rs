//! The state of one call between tries, and the decision what to do next. The time and the random numbers are
//! arguments. Nothing here sends or waits, so a simulated client and a real one take the same decisions.

use std::time::Duration;

use super::backoff::Backoff;
use super::random::Chance;
use super::retry_config::RetryConfig;
use super::retry_decision::{Departed, Guard, Judged, Tried, judge};

/// What to do after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call is over: this answer, or this failure, is its end.
    Give,
    /// Wait this long, ask the budget, and send the same again.
    Again {
        /// How long to wait first.
        pause: Duration,
        /// Whether to keep waiting if the budget allows no retry, instead of ending the call: an earlier
        /// request with this key is still running, and its answer is expected.
        patient: bool,
    },
    /// The call is over without an end to give.
    Stop(Why),
}

/// Why a call stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The maximum number of tries was reached.
    Tries,
    /// The deadline has passed, or would pass before the next try.
    Deadline,
    /// The retry budget of the host is used up.
    Budget,
    /// The circuit breaker of the host is open: most recent tries failed.
    Shut {
        /// When it makes sense to ask again.
        retry_in: Duration,
    },
    /// The server no longer honours the key, or may not: another try could run the request a second time.
    Expired,
    /// The server reports that the outcome is unknown.
    Unknown,
}

/// The state of one call between its tries. `now` is any clock that does not go back.
#[derive(Clone, Debug)]
pub struct RetryState {
    limits: TryLimits,
    guard: Guard,
    ends: Duration,
    honoured_until: Duration,
    tries: u32,
    /// Pauses so far: the backoff grows with them.
    pauses: u32,
    /// Tries that failed.
    failures: u32,
    departed: Departed,
}

/// The part of [`RetryConfig`] that is needed between tries. Each call holds a copy, so it is kept small.
#[derive(Clone, Copy, Debug)]
struct TryLimits {
    tries_max: u32,
    try_at_most: Duration,
    backoff: Backoff,
    retry_after_max: Duration,
}

impl RetryState {
    /// A call that begins now. The server honours its key for `config.honoured_for` from now on.
    pub fn new(config: RetryConfig, guard: Guard, now: Duration) -> Self {
        let RetryConfig { tries_max, try_at_most, backoff, retry_after_max, .. } = config;
        Self {
            limits: TryLimits { tries_max, try_at_most, backoff, retry_after_max },
            guard,
            ends: now.saturating_add(config.call_at_most),
            honoured_until: now.saturating_add(config.honoured_for),
            tries: 0,
            pauses: 0,
            failures: 0,
            departed: Departed::No,
        }
    }

    /// Marks a call that another process may have begun: its request may have been sent already, and its
    /// key is honoured for `left` from now on.
    pub fn resumed(mut self, now: Duration, left: Duration) -> Self {
        self.departed = Departed::Maybe;
        self.honoured(now, left);
        self
    }

    /// Records how long the server honours the key from now on, as it has said.
    pub fn honoured(&mut self, now: Duration, left: Duration) {
        self.honoured_until = now.saturating_add(left);
    }

    /// Begins a try. Returns its number and how long it may take: not beyond the end of the call or the
    /// expiry of the key.
    pub fn begin(&mut self, now: Duration) -> (u32, Duration) {
        self.tries += 1;
        let ends = if self.guard == Guard::Keyed { self.ends.min(self.honoured_until) } else { self.ends };
        (self.tries, self.limits.try_at_most.min(ends.saturating_sub(now)))
    }

    /// How many tries were begun.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether anything may have reached the server.
    pub fn departed(&self) -> Departed {
        self.departed
    }

    /// What to do after a try.
    pub fn next(&mut self, now: Duration, tried: &Tried, chance: impl FnOnce() -> Chance) -> Next {
        if !matches!(tried, Tried::Failed(Departed::No) | Tried::Impossible) {
            self.departed = Departed::Maybe;
        }
        let waits = match judge(self.guard, tried) {
            Judged::Final => return Next::Give,
            Judged::Unknown => return Next::Stop(Why::Unknown),
            Judged::Expired => return Next::Stop(Why::Expired),
            Judged::Again => false,
            Judged::Wait => true,
        };
        self.pauses += 1;
        self.failures += u32::from(!waits);
        if self.failures >= self.limits.tries_max {
            return Next::Stop(Why::Tries);
        }
        let pause = match tried {
            Tried::Answered { retry_after: Some(hint), .. } => {
                let hint = (*hint).min(self.limits.retry_after_max);
                self.limits.backoff.pause_after(self.pauses, hint, chance())
            }
            _ => self.limits.backoff.pause(self.pauses, chance()),
        };
        self.again(now, pause, waits)
    }

    /// What to do if a patient call finds the budget used up: it waits as after another failure.
    pub fn wait_longer(&mut self, now: Duration, chance: impl FnOnce() -> Chance) -> Next {
        self.pauses += 1;
        let ceiling = self.limits.backoff.ceiling(self.pauses);
        let pause = ceiling / 2 + chance().part_of(ceiling / 2);
        self.again(now, pause, true)
    }

    /// Whether a try may begin now.
    pub fn may_try(&self, now: Duration) -> Result<(), Why> {
        if self.has_expired(now) {
            Err(Why::Expired)
        } else if now >= self.ends {
            Err(Why::Deadline)
        } else {
            Ok(())
        }
    }

    /// Another try after `pause`, if that is in time.
    fn again(&self, now: Duration, pause: Duration, patient: bool) -> Next {
        let then = now.saturating_add(pause);
        if let Err(why) = self.may_try(now) {
            Next::Stop(why)
        } else if then >= self.ends || self.has_expired(then) {
            // Not expired yet: a resumption may still be in time.
            Next::Stop(Why::Deadline)
        } else {
            Next::Again { pause, patient }
        }
    }

    /// Whether another try at `then` could run the request a second time.
    fn has_expired(&self, then: Duration) -> bool {
        self.guard == Guard::Keyed && self.departed == Departed::Maybe && then >= self.honoured_until
    }
}

#[cfg(test)]
#[path = "retry_state_test.rs"]
mod tests;
