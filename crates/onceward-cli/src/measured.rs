//! A store that is watched: how long each call takes, how large batches are, what fails.
//!
//! [`watch`] goes around any store and knows nothing of it. All it costs is two readings of the
//! clock and a few additions per call; nothing is locked.

mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use histogram::Histogram;
use onceward::{Applied, Caps, Found, Fut, Groups, Id, Page, Scan, Store, Swap, Swapped};

/// Upper bounds of the latency buckets, in microseconds: from a store in this process to one that is
/// about to be given up.
const LATENCY_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Upper bounds of the batch buckets, in records.
const BATCH_RECORDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

/// The calls of a store.
const CALLS: [&str; 3] = ["swap", "load", "scan"];

#[derive(Clone, Copy)]
enum Call {
    Swap,
    Load,
    Scan,
}

/// Puts an eye on a store, and says where to look.
pub fn watch(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Measures>) {
    let gathers = inner.caps().gathers.then(|| inner.clone());
    let measures = Arc::new(Measures { gathers, ..Measures::default() });
    (Arc::new(Measured { inner, measures: measures.clone() }), measures)
}

/// What has been seen of a store.
pub struct Measures {
    latency: [Histogram; CALLS.len()],
    batch: [Histogram; 2],
    /// The store, if it makes groups by itself: then it knows how large they were.
    gathers: Option<Arc<dyn Store>>,
    /// Calls under way.
    under_way: AtomicU64,
    /// Failed, by whether the write may have happened.
    errors_no: [AtomicU64; CALLS.len()],
    errors_maybe: [AtomicU64; CALLS.len()],
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            latency: std::array::from_fn(|_| Histogram::new(&LATENCY_US)),
            batch: std::array::from_fn(|_| Histogram::new(&BATCH_RECORDS)),
            gathers: None,
            under_way: AtomicU64::new(0),
            errors_no: Default::default(),
            errors_maybe: Default::default(),
        }
    }
}

impl Measures {
    /// Writes them down as Prometheus text.
    pub fn write(&self, out: &mut String) {
        use std::fmt::Write;

        const SECONDS_PER_US: f64 = 1e-6;
        out.push_str("# TYPE onceward_store_call_seconds histogram\n");
        for (call, latency) in CALLS.iter().zip(&self.latency) {
            latency.write(out, "onceward_store_call_seconds", ("call", call), SECONDS_PER_US);
        }
        out.push_str("# TYPE onceward_store_batch_records histogram\n");
        for (call, batch) in CALLS.iter().zip(&self.batch) {
            let (name, label) = ("onceward_store_batch_records", ("call", *call));
            match &self.gathers {
                Some(store) if *call == "swap" => {
                    let groups = store.groups();
                    histogram::write(out, name, label, 1.0, &BATCH_RECORDS, groups.by_size, groups.swaps);
                }
                _ => batch.write(out, name, label, 1.0),
            }
        }
        out.push_str("# TYPE onceward_store_call_errors_total counter\n");
        for (applied, errors) in [("no", &self.errors_no), ("maybe", &self.errors_maybe)] {
            for (call, errors) in CALLS.iter().zip(errors) {
                let count = errors.load(Ordering::Relaxed);
                let _ = writeln!(
                    out,
                    "onceward_store_call_errors_total{{call=\"{call}\",applied=\"{applied}\"}} {count}"
                );
            }
        }
        let under_way = self.under_way.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "# TYPE onceward_store_calls_under_way gauge\nonceward_store_calls_under_way {under_way}"
        );
    }

    fn begin(&self, call: Call, records: Option<usize>) -> Watch<'_> {
        if let Some(records) = records {
            self.batch[call as usize].add(records as u64);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Watch { measures: self, call, began: Instant::now() }
    }
}

/// One call under way. A call that is dropped is no longer under way, and has no latency.
struct Watch<'a> {
    measures: &'a Measures,
    call: Call,
    began: Instant,
}

impl Watch<'_> {
    fn end<T>(self, result: onceward::Result<T>) -> onceward::Result<T> {
        let call = self.call as usize;
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.measures.latency[call].add(us);
        if let Err(error) = &result {
            let errors = match error.applied() {
                Applied::No => &self.measures.errors_no,
                Applied::Maybe => &self.measures.errors_maybe,
            };
            errors[call].fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.measures.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A store with an eye on it.
struct Measured {
    inner: Arc<dyn Store>,
    measures: Arc<Measures>,
}

impl Store for Measured {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(async move {
            let watch = self.measures.begin(Call::Swap, Some(batch.len()));
            watch.end(self.inner.swap(batch).await)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        Box::pin(async move {
            let watch = self.measures.begin(Call::Load, Some(ids.len()));
            watch.end(self.inner.load(ids).await)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        Box::pin(async move {
            let watch = self.measures.begin(Call::Scan, None);
            watch.end(self.inner.scan(query).await)
        })
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn groups(&self) -> Groups {
        self.inner.groups()
    }
}

#[cfg(test)]
#[path = "measured_test.rs"]
mod tests;
