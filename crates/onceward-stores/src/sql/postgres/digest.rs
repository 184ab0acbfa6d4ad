//! Hashes an id into three numbers, which are the primary key of the table.
//!
//! ```text
//! id_high     32 bits of SHA-256(scope), then 32 bits of SHA-256(key)
//! id_middle   the first 64 bits of SHA-256(id)
//! id_low      the next 64 bits of SHA-256(id)
//! ```
//!
//! The id is hashed in the form of [`Id::as_bytes`], so no two ids have the same input. The receipts of a scope
//! are side by side, and so are those of a key in it: an intent and its steps, which are found that way. The
//! first number distinguishes nearly all intents; the others make it infeasible to construct two ids with the same
//! numbers. Should it happen, the second one's claims are refused: statements that create or load a record compare the three
//! texts as well.
//!
//! **Forever.** These numbers must never change: two processes that compute different numbers for one id would both run it.
//! One test computes them in SQL, and another has fixed examples.

use std::ops::RangeInclusive;

use onceward::Id;
use sha2::{Digest as _, Sha256};

/// The numbers of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) high: i64,
    pub(super) middle: i64,
    pub(super) low: i64,
}

impl Digest {
    pub(super) fn of(id: &Id) -> Self {
        Self::within(of_text(id.scope()), id)
    }

    /// The numbers of an id whose scope is already hashed.
    pub(super) fn within(scope: u32, id: &Id) -> Self {
        let hash = Sha256::digest(id.as_bytes());
        let (middle, rest) = hash.split_first_chunk::<8>().expect("a hash has 32 bytes");
        let (low, _) = rest.split_first_chunk::<8>().expect("a hash has 32 bytes");
        let high = high(scope, of_text(id.key()));
        Self { high, middle: i64::from_be_bytes(*middle), low: i64::from_be_bytes(*low) }
    }
}

/// The 32 bits of a scope or a key.
pub(super) fn of_text(text: &str) -> u32 {
    let hash = Sha256::digest(text.as_bytes());
    u32::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
}

fn high(scope: u32, key: u32) -> i64 {
    (u64::from(scope) << 32 | u64::from(key)).cast_signed()
}

/// What `id_high` is for the ids of a scope, or of one key in it, and for few others; anything where no scope is
/// given.
pub(super) fn range_of(scope: Option<&str>, key: Option<&str>) -> RangeInclusive<i64> {
    match (scope.map(of_text), key.map(of_text)) {
        (Some(scope), Some(key)) => high(scope, key)..=high(scope, key),
        (Some(scope), None) => high(scope, 0)..=high(scope, u32::MAX),
        (None, _) => i64::MIN..=i64::MAX,
    }
}

#[cfg(test)]
#[path = "digest_test.rs"]
mod tests;
