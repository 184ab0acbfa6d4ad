//! A store wrapper that measures calls: their latency, the sizes of batches, and errors.
//!
//! [`measure`] wraps any store. Each call costs two clock reads and a few atomic additions, and takes no lock.

mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use histogram::Histogram;
use onceward::{
    Applied, Caps, Choose, Error, Id, Loaded, Onceward, OncewardBuilder, Page, Scan, State, Store,
    StoreFuture, Swap, Swapped, Watch,
};
use onceward_stores::GroupCommits;

/// Upper bounds of the latency buckets, in microseconds: from a store in memory to a call that is about to time out.
const LATENCY_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Upper bounds of the batch buckets, in records.
const BATCH_RECORDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

/// The names of the calls, in the order of [`StoreCall`].
const CALLS: [&str; 3] = ["swap", "load", "scan"];

#[derive(Clone, Copy)]
enum StoreCall {
    Swap,
    Load,
    Scan,
}

/// Reads the sizes of the groups that a store has written.
pub type ReadGroups = Arc<dyn Fn() -> GroupCommits + Send + Sync>;

/// Opens the store at an address, and returns a builder for an engine over it, with the metrics of the store. What the
/// store can lose is logged, if the address has accepted that.
pub async fn open(url: &str) -> onceward::Result<(OncewardBuilder, Arc<StoreMetrics>)> {
    let opened = onceward_stores::open_with_metrics(url).await?;
    let (store, metrics) = measure(opened.store, opened.group_commits);
    let builder = Onceward::builder(store);
    let builder = match opened.front {
        None => builder,
        Some(front) => builder.with_front(front),
    };
    Ok(match opened.accepted_losses {
        None => (builder, metrics),
        Some(losses) => {
            tracing::warn!("{losses}");
            (builder.accept_volatile(), metrics)
        }
    })
}

/// Wraps a store, and returns it with its metrics. `groups` is given for a store that batches internally.
pub fn measure(inner: Arc<dyn Store>, groups: Option<ReadGroups>) -> (Arc<dyn Store>, Arc<StoreMetrics>) {
    let metrics = Arc::new(StoreMetrics { groups, ..StoreMetrics::default() });
    (Arc::new(MeasuredStore { inner, metrics: metrics.clone() }), metrics)
}

/// The metrics of one store.
pub struct StoreMetrics {
    latency: [Histogram; CALLS.len()],
    batch: [Histogram; 2],
    /// The group sizes of a store that batches internally; they replace the sizes measured here.
    groups: Option<ReadGroups>,
    /// Calls in progress.
    under_way: AtomicU64,
    /// Failed calls, by whether the write may have been applied.
    errors_no: [AtomicU64; CALLS.len()],
    errors_maybe: [AtomicU64; CALLS.len()],
}

impl Default for StoreMetrics {
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

impl StoreMetrics {
    /// Appends the metrics as Prometheus text.
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

    fn begin(&self, call: StoreCall, records: Option<usize>) -> CallInProgress<'_> {
        if let Some(records) = records {
            self.batch[call as usize].add(records as u64);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        CallInProgress { metrics: self, call, began: Instant::now() }
    }

    fn failed(&self, call: StoreCall, error: &Error) {
        let errors = match error.applied() {
            Applied::No => &self.errors_no,
            Applied::Maybe => &self.errors_maybe,
        };
        errors[call as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// A call in progress. A call that is dropped is no longer counted as in progress, and records no latency.
struct CallInProgress<'a> {
    metrics: &'a StoreMetrics,
    call: StoreCall,
    began: Instant,
}

impl CallInProgress<'_> {
    fn end<T>(self, result: onceward::Result<T>) -> onceward::Result<T> {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.metrics.latency[self.call as usize].add(us);
        if let Err(error) = &result {
            self.metrics.failed(self.call, error);
        }
        result
    }
}

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        self.metrics.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A store whose calls are measured.
struct MeasuredStore {
    inner: Arc<dyn Store>,
    metrics: Arc<StoreMetrics>,
}

impl Store for MeasuredStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let call = self.metrics.begin(StoreCall::Swap, Some(batch.len()));
            let answers = call.end(self.inner.swap(batch).await)?;
            for answer in &answers {
                if let Swapped::Failed(error) = answer {
                    self.metrics.failed(StoreCall::Swap, error);
                }
            }
            Ok(answers)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let call = self.metrics.begin(StoreCall::Load, Some(ids.len()));
            let answers = call.end(self.inner.load(ids).await)?;
            for error in answers.iter().filter_map(|loaded| loaded.as_ref().err()) {
                self.metrics.failed(StoreCall::Load, error);
            }
            Ok(answers)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let call = self.metrics.begin(StoreCall::Scan, None);
            call.end(self.inner.scan(query).await)
        })
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        let taking = self.inner.take(state, limit, choose)?;
        Some(Box::pin(async move {
            let call = self.metrics.begin(StoreCall::Swap, None);
            call.end(taking.await)
        }))
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

#[cfg(test)]
#[path = "measured_store_test.rs"]
mod tests;
