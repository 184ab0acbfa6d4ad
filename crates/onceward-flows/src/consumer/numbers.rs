//! The numbers that messages have from their outbox: whether one comes behind a newer one of its ordering key. Pure.
//!
//! It is a check of what is before the consumer, so it need not remember everything: after a restart, and for keys of
//! which nothing has come for long, it begins again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Keys that are remembered: as many again are, of which nothing has come for longer. With 24 bytes for each that is a few
/// megabytes.
const KEYS_MAX: usize = 50_000;

/// The highest number that has come of each ordering key. Of a key there is its hash: two keys with the same one are a wrong
/// warning, in one of billions of runs.
#[derive(Debug)]
pub(super) struct Numbers {
    hasher: RandomState,
    /// Keys of which something has come lately, and the others.
    recent: HashMap<(u32, u64), i64>,
    older: HashMap<(u32, u64), i64>,
    keys_max: usize,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { hasher: RandomState::new(), recent: HashMap::new(), older: HashMap::new(), keys_max: KEYS_MAX }
    }
}

impl Numbers {
    /// Notes a message of a partition, and returns the highest number of its key if that is higher.
    pub(super) fn newer(&mut self, part: u32, key: &str, number: i64) -> Option<i64> {
        let key = (part, self.hasher.hash_one(key));
        let before = self.recent.get(&key).or_else(|| self.older.get(&key)).copied();
        if self.recent.len() >= self.keys_max && !self.recent.contains_key(&key) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, before.map_or(number, |before| before.max(number)));
        before.filter(|before| *before > number)
    }

    /// Forgets a partition, which is then read again from an earlier position.
    pub(super) fn forget(&mut self, part: u32) {
        self.recent.retain(|(of, _), _| *of != part);
        self.older.retain(|(of, _), _| *of != part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_number_of_the_same_key_and_partition_is_noticed() {
        let mut numbers = Numbers::default();
        let rows = [
            (0, "a", 5, None),
            (0, "a", 9, None),
            (0, "b", 1, None),
            (1, "a", 1, None),
            (0, "a", 9, None), // a copy
            (0, "a", 6, Some(9)),
            (0, "a", 7, Some(9)),
            (0, "a", 10, None),
        ];
        for (part, key, number, expected) in rows {
            assert_eq!(numbers.newer(part, key, number), expected, "{part} {key} {number}");
        }
        numbers.forget(0);
        assert_eq!(numbers.newer(0, "a", 1), None, "it is read again");
        assert_eq!(numbers.newer(1, "a", 0), Some(1));
    }

    #[test]
    fn the_keys_of_which_something_came_last_are_kept() {
        let mut numbers = Numbers { keys_max: 10, ..Numbers::default() };
        for number in 0..100 {
            numbers.newer(0, "hot", 1_000 + number);
            numbers.newer(0, &format!("k{number}"), 7);
            assert!(numbers.recent.len() <= 10 && numbers.older.len() <= 10);
        }
        assert_eq!(numbers.newer(0, "hot", 3), Some(1_099));
        assert_eq!(numbers.newer(0, "k0", 3), None, "forgotten");
    }
}
