//! A random number for jitter. It is an argument of the decisions, so that tests can choose it.

use std::time::Duration;

/// A uniformly distributed random number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u64);

impl Chance {
    /// Draws a number from the operating system's random source.
    pub fn draw() -> Self {
        let mut bytes = [0; 8];
        // Without a random source there is no jitter; nothing else depends on it.
        let _ = getrandom::fill(&mut bytes);
        Self(u64::from_le_bytes(bytes))
    }

    /// Scales `most` by this number: uniformly distributed between zero and `most`.
    pub fn part_of(self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let part = (u128::from(most) * (u128::from(self.0) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(part).expect("a part of 64 bits has 64 bits"))
    }
}
