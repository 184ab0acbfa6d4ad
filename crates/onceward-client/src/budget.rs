//! The retry budget of one host: retries are limited to a share of the recent requests.
//!
//! When a server fails, every client retries, and the retries keep it overloaded. A budget limits them together: by
//! default a host gets at most a tenth more requests than without retries.

use std::time::Duration;

/// How many retries a host may be sent: by default a tenth of the requests of the last ten seconds, or three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetConfig {
    /// Retries per million requests of the last ten seconds.
    pub retries_per_million: u32,
    /// This number of retries in ten seconds is always allowed: a client that sends one request a minute must be able
    /// to retry it.
    pub floor: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { retries_per_million: 100_000, floor: 3 }
    }
}

impl BudgetConfig {
    /// Any number of retries. For tests only.
    pub const UNLIMITED: Self = Self { retries_per_million: u32::MAX, floor: u32::MAX };

    /// Sets the number of retries per million requests of the last ten seconds.
    pub fn with_retries_per_million(mut self, retries: u32) -> Self {
        self.retries_per_million = retries;
        self
    }

    /// Sets the number of retries in ten seconds that are allowed however few requests there were.
    pub fn with_floor(mut self, retries: u32) -> Self {
        self.floor = retries;
        self
    }
}

const SLOTS: usize = 10;
const SLOT: Duration = Duration::from_secs(1);

/// Counts the requests and retries to one host in a sliding window of ten seconds, and allows a retry only while
///
/// ```text
/// retries ≤ max(floor, share · requests)      both counted over the window
/// ```
///
/// A retry never leaves the window before the requests that paid for it, so no request pays twice:
/// over any stretch of time the retries stay within the share of its requests, plus one floor for
/// each window in it that had fewer requests than the floor needs.
#[derive(Clone, Debug)]
pub struct Budget {
    config: BudgetConfig,
    /// The slot that `now` fell into last. A clock that goes back stays here.
    newest: u64,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u64,
    retries: u64,
}

impl Budget {
    /// An empty budget.
    pub fn new(config: BudgetConfig) -> Self {
        Self { config, newest: 0, slots: [Slot::default(); SLOTS] }
    }

    /// Counts a request: the first try of a call. `now` is any clock that does not go back.
    pub fn request(&mut self, now: Duration) {
        self.slot(now).requests += 1;
    }

    /// Counts a retry and allows it, or does neither.
    pub fn retry(&mut self, now: Duration) -> bool {
        self.slot(now);
        let allowed = self.allows_one_more(0);
        if allowed {
            self.slot(now).retries += 1;
        }
        allowed
    }

    /// How long it takes until a retry is allowed, if nothing else is sent meanwhile. Where only further requests can
    /// pay for one, it is the time until the window is empty.
    pub fn retry_in(&mut self, now: Duration) -> Duration {
        self.slot(now);
        let slots = (1..SLOTS).find(|passed| self.allows_one_more(*passed)).unwrap_or(SLOTS);
        let then = SLOT.saturating_mul(u32::try_from(slots).expect("ten at most"));
        Duration::from_secs(self.newest).saturating_add(then).saturating_sub(now)
    }

    /// Whether the window allows one more retry, once this number of its oldest slots has left it.
    fn allows_one_more(&self, left: usize) -> bool {
        let (mut requests, mut retries) = (0_u64, 1_u64);
        for age in 0..SLOTS - left {
            let Some(number) = self.newest.checked_sub(age as u64) else { break };
            let slot = &self.slots[index(number)];
            requests += slot.requests;
            retries += slot.retries;
        }
        let share = u128::from(requests) * u128::from(self.config.retries_per_million);
        u128::from(retries) * 1_000_000 <= share || retries <= u64::from(self.config.floor)
    }

    /// The slot of `now`; slots that are too old are cleared.
    fn slot(&mut self, now: Duration) -> &mut Slot {
        let number = now.as_secs() / SLOT.as_secs();
        while self.newest < number {
            if number - self.newest > SLOTS as u64 {
                self.newest = number - SLOTS as u64;
            }
            self.newest += 1;
            self.slots[index(self.newest)] = Slot::default();
        }
        &mut self.slots[index(self.newest)]
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).expect("a remainder of ten")
}

#[cfg(test)]
#[path = "budget_test.rs"]
mod tests;
