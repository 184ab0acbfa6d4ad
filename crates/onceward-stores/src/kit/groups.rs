//! Sizes of write groups, for metrics: how many swaps share one sync.

#[cfg(feature = "embedded")]
use std::sync::atomic::{AtomicU64, Ordering};

/// How many swaps a store has written in each group, as a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupCommits {
    /// The number of groups of one swap, of up to 2, up to 4 and so on up to 1024, and of larger ones.
    pub by_size: [u64; 12],
    /// Swaps in all of them.
    pub swaps: u64,
}

/// Counts group sizes. Written by one thread, read by any.
#[cfg(feature = "embedded")]
#[derive(Default)]
pub(crate) struct GroupSizes {
    by_size: [AtomicU64; 12],
    swaps: AtomicU64,
}

#[cfg(feature = "embedded")]
impl GroupSizes {
    pub(crate) fn add(&self, swaps: usize) {
        // 1 is the first, 2 the second, 3 and 4 the third, …
        let bucket = swaps.max(1).next_power_of_two().trailing_zeros() as usize;
        self.by_size[bucket.min(self.by_size.len() - 1)].fetch_add(1, Ordering::Relaxed);
        self.swaps.fetch_add(swaps as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> GroupCommits {
        let by_size = self.by_size.each_ref().map(|count| count.load(Ordering::Relaxed));
        GroupCommits { by_size, swaps: self.swaps.load(Ordering::Relaxed) }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_bucket() {
        let sizes = GroupSizes::default();
        for swaps in [1, 2, 3, 4, 5, 1024, 1025, 4096] {
            sizes.add(swaps);
        }
        let read = sizes.read();
        assert_eq!(read.by_size, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(read.swaps, 1 + 2 + 3 + 4 + 5 + 1024 + 1025 + 4096);
    }
}
