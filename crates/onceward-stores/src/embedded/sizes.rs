//! How large the groups were, for whoever wants to know whether a sync is shared.

use std::sync::atomic::{AtomicU64, Ordering};

use onceward::Groups;

/// Written by one thread, read by any.
#[derive(Default)]
pub(crate) struct Sizes {
    by_size: [AtomicU64; 12],
    swaps: AtomicU64,
}

impl Sizes {
    pub(crate) fn add(&self, swaps: usize) {
        // 1 is the first, 2 the second, 3 and 4 the third, …
        let bucket = swaps.max(1).next_power_of_two().trailing_zeros() as usize;
        self.by_size[bucket.min(self.by_size.len() - 1)].fetch_add(1, Ordering::Relaxed);
        self.swaps.fetch_add(swaps as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Groups {
        let by_size = self.by_size.each_ref().map(|count| count.load(Ordering::Relaxed));
        Groups { by_size, swaps: self.swaps.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
#[path = "sizes_test.rs"]
mod tests;
