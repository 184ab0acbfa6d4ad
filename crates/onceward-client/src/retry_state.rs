//! The state of one call between tries, and the decision what to do next. The time and the random numbers are
//! arguments. Nothing here sends or waits, so a simulated client and a real one take the same decisions.

use std::time::Duration;

use super::backoff::JitteredBackoff;
use super::random::Chance;
use super::retry_config::RetryConfig;
use super::retry_decision::{Decision, Guard, Sent, TryResult, decide};

/// What to do after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call is over: this answer, or this failure, is its end.
    Finish,
    /// Wait this long, ask the budget, and send the same again.
    Retry {
        /// How long to wait first.
        pause: Duration,
    },
    /// The call is over without an end to give.
    Stop(StopReason),
}

/// Why a call stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The maximum number of tries was reached.
    Tries,
    /// The deadline has passed, or would pass before the next try.
    Deadline,
    /// The retry budget of the host is used up, and allows no retry before the deadline.
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

/// Over how long the calls are spread that wait for the budget of one host.
const BUDGET_SPREAD: Duration = Duration::from_secs(1);
/// Over which part of its pause the calls are spread that wait for the breaker of one host: a quarter.
const BREAKER_SPREAD: u32 = 4;

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
    was_sent: Sent,
}

/// The part of [`RetryConfig`] that is needed between tries. Each call holds a copy, so it is kept small.
#[derive(Clone, Copy, Debug)]
struct TryLimits {
    tries_max: u32,
    try_at_most: Duration,
    backoff: JitteredBackoff,
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
            was_sent: Sent::No,
        }
    }

    /// Marks a call that another process may have begun: its request may have been sent already, and its
    /// key is honoured for `left` from now on.
    pub fn resumed(mut self, now: Duration, left: Duration) -> Self {
        self.was_sent = Sent::Maybe;
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

    /// Returns whether anything may have reached the server.
    pub fn was_sent(&self) -> Sent {
        self.was_sent
    }

    /// What to do after a try.
    pub fn next(&mut self, now: Duration, tried: &TryResult, chance: impl FnOnce() -> Chance) -> Next {
        if tried.may_have_run() == Sent::Maybe {
            self.was_sent = Sent::Maybe;
        }
        let waits = match decide(self.guard, tried) {
            Decision::Final => return Next::Finish,
            Decision::Unknown => return Next::Stop(StopReason::Unknown),
            Decision::Expired => return Next::Stop(StopReason::Expired),
            Decision::Retry => false,
            Decision::Wait => true,
        };
        self.pauses += 1;
        self.failures += u32::from(!waits);
        if self.failures >= self.limits.tries_max {
            return Next::Stop(StopReason::Tries);
        }
        let pause = match tried {
            TryResult::Answered { retry_after: Some(hint), .. } => {
                let hint = (*hint).min(self.limits.retry_after_max);
                self.limits.backoff.pause_after(self.pauses, hint, chance())
            }
            _ => self.limits.backoff.pause(self.pauses, chance()),
        };
        self.again(now, pause)
    }

    /// What to do if the budget of the host is used up: wait until it allows a retry again, in `retry_in` at the
    /// earliest. A budget delays a call; only its deadline ends it. Calls that wait for the same host are spread over
    /// a second, because each window pays for few of them.
    pub fn wait_for_budget(
        &self,
        now: Duration,
        retry_in: Duration,
        chance: impl FnOnce() -> Chance,
    ) -> Next {
        let pause = retry_in.saturating_add(chance().part_of(BUDGET_SPREAD));
        match self.again(now, pause) {
            Next::Stop(StopReason::Deadline) => Next::Stop(StopReason::Budget),
            next => next,
        }
    }

    /// When to ask an open breaker again, in `retry_in` at the earliest. The call stops if its deadline comes before.
    pub fn wait_for_breaker(
        &self,
        now: Duration,
        retry_in: Duration,
        chance: impl FnOnce() -> Chance,
    ) -> Next {
        self.again(now, retry_in.saturating_add(chance().part_of(retry_in / BREAKER_SPREAD)))
    }

    /// Returns whether a try may begin now.
    pub fn may_try(&self, now: Duration) -> Result<(), StopReason> {
        if self.has_expired(now) {
            Err(StopReason::Expired)
        } else if now >= self.ends {
            Err(StopReason::Deadline)
        } else {
            Ok(())
        }
    }

    /// Another try after `pause`, if that is in time.
    fn again(&self, now: Duration, pause: Duration) -> Next {
        let then = now.saturating_add(pause);
        if let Err(why) = self.may_try(now) {
            Next::Stop(why)
        } else if then >= self.ends || self.has_expired(then) {
            // Not expired yet: a resumption may still be in time.
            Next::Stop(StopReason::Deadline)
        } else {
            Next::Retry { pause }
        }
    }

    /// Whether another try at `then` could run the request a second time.
    fn has_expired(&self, then: Duration) -> bool {
        self.guard == Guard::Keyed && self.was_sent == Sent::Maybe && then >= self.honoured_until
    }
}

#[cfg(test)]
#[path = "retry_state_test.rs"]
mod tests;
