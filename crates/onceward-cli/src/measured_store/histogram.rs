//! A histogram with fixed bounds, for concurrent writers and without a lock.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts values by bucket. The bounds are fixed when it is created.
pub struct Histogram {
    bounds: &'static [u64],
    /// One bucket per bound and one above the last bound. Not cumulative: each value is in one bucket.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram with these inclusive upper bounds, in ascending order.
    pub fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted(), "the bounds of a histogram must be ascending");
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Appends it as Prometheus text under `name` and one label. Values are multiplied by `unit`.
    pub fn write(&self, out: &mut String, name: &str, label: (&str, &str), unit: f64) {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        write(out, name, label, unit, self.bounds, buckets, self.sum.load(Ordering::Relaxed));
    }
}

/// Appends buckets that were counted elsewhere. The total is computed from the buckets that were read, so the two agree
/// even while values are added.
pub fn write(
    out: &mut String,
    name: &str,
    (label, value): (&str, &str),
    unit: f64,
    bounds: &[u64],
    buckets: impl IntoIterator<Item = u64>,
    sum: u64,
) {
    let mut count = 0;
    for (index, bucket) in buckets.into_iter().enumerate() {
        count += bucket;
        let _ = match bounds.get(index) {
            Some(bound) => {
                let bound = scaled(*bound, unit);
                writeln!(out, "{name}_bucket{{{label}=\"{value}\",le=\"{bound}\"}} {count}")
            }
            None => writeln!(out, "{name}_bucket{{{label}=\"{value}\",le=\"+Inf\"}} {count}"),
        };
    }
    let sum = scaled(sum, unit);
    let _ = writeln!(out, "{name}_sum{{{label}=\"{value}\"}} {sum}");
    let _ = writeln!(out, "{name}_count{{{label}=\"{value}\"}} {count}");
}

#[expect(clippy::cast_precision_loss, reason = "a sum of microseconds is exact for the first 285 years")]
fn scaled(value: u64, unit: f64) -> f64 {
    // Divides by the reciprocal: 250 / 1e6 prints as 0.00025, 250 * 1e-6 does not.
    value as f64 / (1.0 / unit).round()
}
