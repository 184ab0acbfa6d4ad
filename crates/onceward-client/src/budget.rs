//! The retry budget of one host: retries are limited to a share of the recent requests.
//!
//! When a server fails, every client retries, and the retries keep it overloaded. A budget limits them together: by
//! default a host gets at most a tenth more requests than without retries.

use std::time::Duration;

/// What a budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTerms {
    /// Retries per million requests of the last ten seconds.
    pub retries_per_million: u32,
    /// This number of retries in ten seconds is always allowed: a client that sends one request a minute must be able
    /// to retry it.
    pub floor: u32,
}

impl Default for BudgetTerms {
    fn default() -> Self {
        Self { retries_per_million: 100_000, floor: 3 }
    }
}

impl BudgetTerms {
    /// Any number of retries. For tests only.
    pub const UNLIMITED: Self = Self { retries_per_million: u32::MAX, floor: u32::MAX };
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
    terms: BudgetTerms,
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
    pub fn new(terms: BudgetTerms) -> Self {
        Self { terms, newest: 0, slots: [Slot::default(); SLOTS] }
    }

    /// Counts a request: the first try of a call. `now` is any clock that does not go back.
    pub fn request(&mut self, now: Duration) {
        self.slot(now).requests += 1;
    }

    /// Counts a retry and allows it, or does neither.
    pub fn retry(&mut self, now: Duration) -> bool {
        self.slot(now);
        let (mut requests, mut retries) = (0_u64, 1_u64);
        for slot in &self.slots {
            requests += slot.requests;
            retries += slot.retries;
        }
        let share = u128::from(requests) * u128::from(self.terms.retries_per_million);
        let allowed = u128::from(retries) * 1_000_000 <= share || retries <= u64::from(self.terms.floor);
        if allowed {
            self.slot(now).retries += 1;
        }
        allowed
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
