//! A store whose calls are measured: how long each takes, how large batches are, what fails.
//!
//! [`watch`] wraps any store. It costs two readings of the clock and a few additions per call, and takes no lock.

mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use histogram::Histogram;
use onceward::{Applied, Caps, Error, Id, Loaded, Page, Scan, Store, StoreFuture, Swap, Swapped, Watch};
use onceward_stores::Groups;

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

/// Reads how large the groups were that a store has made.
pub type ReadGroups = Arc<dyn Fn() -> Groups + Send + Sync>;

/// Opens the store that an address names, with its measurements.
pub async fn open(url: &str) -> onceward::Result<(Arc<dyn Store>, Arc<Measures>)> {
    let opened = onceward_stores::open_with_metrics(url).await?;
    Ok(watch(opened.store, opened.groups))
}

/// Wraps a store, and gives its measurements. `groups` are those of a store that batches by itself.
pub fn watch(inner: Arc<dyn Store>, groups: Option<ReadGroups>) -> (Arc<dyn Store>, Arc<Measures>) {
    let measures = Arc::new(Measures { groups, ..Measures::default() });
    (Arc::new(Measured { inner, measures: measures.clone() }), measures)
}

/// What has been seen of a store.
pub struct Measures {
    latency: [Histogram; CALLS.len()],
    batch: [Histogram; 2],
    /// Of a store that makes groups by itself: it knows how large they were.
    groups: Option<ReadGroups>,
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
            groups: None,
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
            match &self.groups {
                Some(read) if *call == "swap" => {
                    let groups = read();
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

    fn begin(&self, call: Call, records: Option<usize>) -> UnderWay<'_> {
        if let Some(records) = records {
            self.batch[call as usize].add(records as u64);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { measures: self, call, began: Instant::now() }
    }

    fn failed(&self, call: Call, error: &Error) {
        let errors = match error.applied() {
            Applied::No => &self.errors_no,
            Applied::Maybe => &self.errors_maybe,
        };
        errors[call as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// One call under way. A call that is dropped is no longer under way, and has no latency.
struct UnderWay<'a> {
    measures: &'a Measures,
    call: Call,
    began: Instant,
}

impl UnderWay<'_> {
    fn end<T>(self, result: onceward::Result<T>) -> onceward::Result<T> {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.measures.latency[self.call as usize].add(us);
        if let Err(error) = &result {
            self.measures.failed(self.call, error);
        }
        result
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.measures.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A store whose calls are measured.
struct Measured {
    inner: Arc<dyn Store>,
    measures: Arc<Measures>,
}

impl Store for Measured {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let under_way = self.measures.begin(Call::Swap, Some(batch.len()));
            let answers = under_way.end(self.inner.swap(batch).await)?;
            for answer in &answers {
                if let Swapped::Failed(error) = answer {
                    self.measures.failed(Call::Swap, error);
                }
            }
            Ok(answers)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let under_way = self.measures.begin(Call::Load, Some(ids.len()));
            let answers = under_way.end(self.inner.load(ids).await)?;
            for error in answers.iter().filter_map(|loaded| loaded.as_ref().err()) {
                self.measures.failed(Call::Load, error);
            }
            Ok(answers)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let under_way = self.measures.begin(Call::Scan, None);
            under_way.end(self.inner.scan(query).await)
        })
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

#[cfg(test)]
#[path = "measured_test.rs"]
mod tests;
