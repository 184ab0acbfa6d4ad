//! One draw of chance, made outside and handed in: what is jittered here can be tested without luck.

use std::time::Duration;

/// A number drawn evenly from all numbers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u64);

impl Chance {
    /// Draws one from the operating system's randomness.
    pub fn draw() -> Self {
        let mut bytes = [0; 8];
        // Without randomness there is no jitter, and everything else still holds.
        let _ = getrandom::fill(&mut bytes);
        Self(u64::from_le_bytes(bytes))
    }

    /// This draw's part of `most`: evenly from nothing to all of it.
    pub fn part_of(self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let part = (u128::from(most) * (u128::from(self.0) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(part).expect("a part of 64 bits has 64 bits"))
    }
}
