//! The random number generator of simulations and endpoint checks: seeded, and the same on every machine.

use std::time::Duration;

/// xoshiro256++, seeded through splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Self { state }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.number()) * (end as u128);
        usize::try_from(wide >> 64).unwrap_or_default()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let wide = u128::from(self.number()) * (u128::from(high - low) + 1);
        low + u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// A duration in microseconds, both ends included.
    pub fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }

    /// True in this many of a thousand cases.
    pub fn chance(&mut self, per_thousand: u32) -> bool {
        self.below(1000) < per_thousand as usize
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// One of these, each as likely as its weight says.
    pub fn weighed<T: Copy>(&mut self, of: &[(u32, T)]) -> T {
        let total: u32 = of.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total as usize);
        for (weight, item) in of {
            if at < *weight as usize {
                return *item;
            }
            at -= *weight as usize;
        }
        unreachable!("the weights add up to the total")
    }
}
