//! The course of one call: from try to try, with the time and the chance handed in. It sends nothing
//! and waits for nothing, so a simulated client and a real one take the same decisions.

use std::time::Duration;

use super::backoff::Backoff;
use super::chance::Chance;
use super::judge::{Departed, Guard, Judged, Tried, judge};
use super::terms::Terms;

/// What to do after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call is over: this answer, or this failure, is its end.
    Give,
    /// Wait this long, ask the budget, and send the same again.
    Again {
        /// How long to wait first.
        pause: Duration,
        /// Whether to wait on where the budget says no, instead of ending the call: the first one is
        /// still running, and its answer is worth waiting for.
        patient: bool,
    },
    /// The call is over without an end to give.
    Stop(Why),
}

/// Why a call stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It was tried as often as the terms allow.
    Tries,
    /// Its time is up, or would be before the next try.
    Deadline,
    /// The host has had its share of retries.
    Budget,
    /// The host fails most of what it is sent, and is left alone.
    Shut {
        /// When it makes sense to ask again.
        retry_in: Duration,
    },
    /// The server does not honour the key any more, or may not: another try could run a second time.
    Expired,
    /// The server says that nobody can tell at present whether it took effect.
    Unknown,
}

/// One call on its way. `now` is any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Course {
    pace: Pace,
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

/// The terms that hold from try to try. Every call carries them along, so no more than these.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tries_max: u32,
    try_at_most: Duration,
    backoff: Backoff,
    retry_after_max: Duration,
}

impl Course {
    /// A call that begins now. The server honours its key for `terms.honoured_for` from now on.
    pub fn new(terms: Terms, guard: Guard, now: Duration) -> Self {
        let Terms { tries_max, try_at_most, backoff, retry_after_max, .. } = terms;
        Self {
            pace: Pace { tries_max, try_at_most, backoff, retry_after_max },
            guard,
            ends: now.saturating_add(terms.call_at_most),
            honoured_until: now.saturating_add(terms.honoured_for),
            tries: 0,
            pauses: 0,
            failures: 0,
            departed: Departed::No,
        }
    }

    /// A call that another process may have begun: whose request may have departed already, and whose
    /// key is honoured for `left` from now on.
    pub fn resumed(mut self, now: Duration, left: Duration) -> Self {
        self.departed = Departed::Maybe;
        self.honoured(now, left);
        self
    }

    /// The server has said how long it honours the key from now on.
    pub fn honoured(&mut self, now: Duration, left: Duration) {
        self.honoured_until = now.saturating_add(left);
    }

    /// Begins a try: its number, and how long it may take. No try outlives the call or the key.
    pub fn begin(&mut self, now: Duration) -> (u32, Duration) {
        self.tries += 1;
        let ends = if self.guard == Guard::Keyed { self.ends.min(self.honoured_until) } else { self.ends };
        (self.tries, self.pace.try_at_most.min(ends.saturating_sub(now)))
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
        if self.failures >= self.pace.tries_max {
            return Next::Stop(Why::Tries);
        }
        let pause = match tried {
            Tried::Answered { retry_after: Some(hint), .. } => {
                let hint = (*hint).min(self.pace.retry_after_max);
                self.pace.backoff.pause_after(self.pauses, hint, chance())
            }
            _ => self.pace.backoff.pause(self.pauses, chance()),
        };
        self.again(now, pause, waits)
    }

    /// What to do where a patient call has no budget: wait as if it had failed once more.
    pub fn linger(&mut self, now: Duration, chance: impl FnOnce() -> Chance) -> Next {
        self.pauses += 1;
        let ceiling = self.pace.backoff.ceiling(self.pauses);
        let pause = ceiling / 2 + chance().part_of(ceiling / 2);
        self.again(now, pause, true)
    }

    /// Whether a try may begin now.
    pub fn room(&self, now: Duration) -> Result<(), Why> {
        if self.has_expired(now) {
            Err(Why::Expired)
        } else if now >= self.ends {
            Err(Why::Deadline)
        } else {
            Ok(())
        }
    }

    /// A pause, if it ends in time.
    fn again(&self, now: Duration, pause: Duration, patient: bool) -> Next {
        let then = now.saturating_add(pause);
        if let Err(why) = self.room(now) {
            Next::Stop(why)
        } else if then >= self.ends || self.has_expired(then) {
            // Not expired yet: who resumes it may be luckier.
            Next::Stop(Why::Deadline)
        } else {
            Next::Again { pause, patient }
        }
    }

    /// Whether another try at `then` could run a second time what an earlier one has run.
    fn has_expired(&self, then: Duration) -> bool {
        self.guard == Guard::Keyed && self.departed == Departed::Maybe && then >= self.honoured_until
    }
}

#[cfg(test)]
#[path = "course_test.rs"]
mod tests;
