//! How many new keys one caller may begin within a time: each is a receipt until its retention ends. A caller that comes
//! back to a key begins none, and a key that its run frees is given back.
//!
//! A caller may begin `max` keys at once, and gets one back every `within / max` (the generic cell rate algorithm): one
//! number for each caller, the moment at which all of its keys are back.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of callers in one generation. There are two generations, so a caller is forgotten at the earliest when as many
/// others have begun keys since. 16 bytes each.
const CALLERS_MAX: usize = 1 << 16;

/// A century and a half: sums of it do not overflow.
const WITHIN_NS_MAX: u64 = u64::MAX / 4;

/// The bound for callers of one kind. `now` is any clock that does not go back.
#[derive(Debug)]
pub(crate) struct NewKeys {
    max: u32,
    within_ns: u64,
    /// Callers are known by a hash with a random key: a scope is a text of any length, and whose hash equals that of another
    /// cannot be chosen.
    hasher: RandomState,
    callers: Mutex<Callers>,
    refused: AtomicU64,
}

/// Of each caller: when all of its keys are back.
#[derive(Debug, Default)]
struct Callers {
    recent: HashMap<u64, u64>,
    /// Those that began no key since `recent` began.
    older: HashMap<u64, u64>,
    recent_since_ns: u64,
}

/// One caller, to give a key back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged(u64);

impl NewKeys {
    /// Up to `max` new keys within this time.
    pub(crate) fn new(max: NonZeroU32, within: Duration) -> Self {
        Self {
            max: max.get(),
            within_ns: nanoseconds(within).min(WITHIN_NS_MAX),
            hasher: RandomState::new(),
            callers: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether this caller may begin one more. If not: when it may. This takes nothing.
    pub(crate) fn check(&self, caller: impl Hash, now: Duration) -> Result<(), Duration> {
        let (caller, now) = (self.hasher.hash_one(caller), nanoseconds(now));
        let all_back = self.callers().all_back(caller);
        self.one_more(all_back, now).map(drop)
    }

    /// Begins one more.
    pub(crate) fn take(&self, caller: impl Hash, now: Duration) -> Result<Charged, Duration> {
        let (caller, now) = (self.hasher.hash_one(caller), nanoseconds(now));
        let mut callers = self.callers();
        let all_back = self.one_more(callers.all_back(caller), now)?;
        callers.put(caller, all_back, now, self.within_ns);
        Ok(Charged(caller))
    }

    /// The key of this caller is free again.
    pub(crate) fn give_back(&self, Charged(caller): Charged) {
        let each = self.each_ns();
        let mut callers = self.callers();
        let Callers { recent, older, .. } = &mut *callers;
        if let Some(all_back) = recent.get_mut(&caller).or_else(|| older.get_mut(&caller)) {
            *all_back = all_back.saturating_sub(each);
        }
    }

    /// Counts a refusal.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How much of its bound the caller has taken that has taken the most.
    pub(crate) fn taken_most(&self, now: Duration) -> u64 {
        let now = nanoseconds(now);
        let callers = self.callers();
        let latest = callers.recent.values().chain(callers.older.values()).max().copied().unwrap_or(0);
        latest.saturating_sub(now).div_ceil(self.each_ns())
    }

    /// When all of its keys are back if it begins one more; an error if that is more than its bound.
    fn one_more(&self, all_back: u64, now: u64) -> Result<u64, Duration> {
        let each = self.each_ns();
        let all_back = all_back.max(now).saturating_add(each);
        let over = all_back.saturating_sub(now).saturating_sub(each.saturating_mul(u64::from(self.max)));
        if over == 0 { Ok(all_back) } else { Err(Duration::from_nanos(over)) }
    }

    fn each_ns(&self) -> u64 {
        (self.within_ns / u64::from(self.max)).max(1)
    }

    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callers {
    fn all_back(&self, caller: u64) -> u64 {
        self.recent.get(&caller).or_else(|| self.older.get(&caller)).copied().unwrap_or(0)
    }

    fn put(&mut self, caller: u64, all_back: u64, now: u64, within: u64) {
        // Nothing that was last put before `within` counts any longer.
        if now.saturating_sub(self.recent_since_ns) >= within || self.recent.len() >= CALLERS_MAX {
            self.older = std::mem::take(&mut self.recent);
            self.recent_since_ns = now;
        }
        self.older.remove(&caller);
        self.recent.insert(caller, all_back);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "new_keys_test.rs"]
mod tests;
