//! An id as three numbers, which are the primary key of the table.
//!
//! ```text
//! id_high     32 bits of SHA-256(scope), then the first 32 bits of SHA-256(id)
//! id_middle   the next 64 bits of SHA-256(id)
//! id_low      the next 64 bits of SHA-256(id)
//! ```
//!
//! The id is hashed in the form of [`Id::as_bytes`], so no two of them run into each other. The receipts of a scope
//! lie side by side. The first number tells nearly all ids apart; the others are there so that nobody can make two ids
//! with the same numbers. Should it happen, the second one's claims are refused: who creates or loads a record asks
//! for the three texts as well.
//!
//! **For ever.** Two processes that make different numbers of one id would both run it. `0004.sql` makes them in SQL,
//! a test holds one against the other, and another knows some by heart.

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
        Self::within(of_scope(id.scope()), id)
    }

    /// Of an id whose scope is hashed already.
    pub(super) fn within(scope: u32, id: &Id) -> Self {
        let hash = Sha256::digest(id.as_bytes());
        let (high, rest) = hash.split_first_chunk::<4>().expect("a hash has 32 bytes");
        let (middle, rest) = rest.split_first_chunk::<8>().expect("a hash has 32 bytes");
        let (low, _) = rest.split_first_chunk::<8>().expect("a hash has 32 bytes");
        let high = u64::from(scope) << 32 | u64::from(u32::from_be_bytes(*high));
        Self { high: high.cast_signed(), middle: i64::from_be_bytes(*middle), low: i64::from_be_bytes(*low) }
    }
}

pub(super) fn of_scope(scope: &str) -> u32 {
    let hash = Sha256::digest(scope.as_bytes());
    u32::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
}

/// Where `id_high` lies for the ids of a scope, and for few others.
pub(super) fn range_of_scope(scope: &str) -> RangeInclusive<i64> {
    let first = (u64::from(of_scope(scope)) << 32).cast_signed();
    first..=first | i64::from(u32::MAX)
}

#[cfg(test)]
#[path = "digest_test.rs"]
mod tests;
