//! Tests of the metrics of a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::{Choose, Error, ErrorKind, Id, Record, Seen, State};
use onceward_stores::MemoryStore;

use super::*;

fn swap(key: &str) -> Swap {
    let record = Record::new(State::Held, Bytes::new()).with_due_in(Some(Duration::from_secs(1)));
    Swap { id: Id::new("s", "o", key).unwrap(), seen: Seen::Absent, new: Some(record) }
}

fn text(metrics: &StoreMetrics) -> String {
    let mut out = String::new();
    metrics.write(&mut out);
    out
}

#[tokio::test]
async fn calls_are_counted_with_their_batch_sizes() {
    let (store, metrics) = measure(Arc::new(MemoryStore::new()), None);
    store.swap(&[swap("a"), swap("b"), swap("c")]).await.unwrap();
    store.load(&[Id::new("s", "o", "a").unwrap()]).await.unwrap();
    let text = text(&metrics);
    for line in [
        "onceward_store_call_seconds_count{call=\"swap\"} 1",
        "onceward_store_call_seconds_count{call=\"load\"} 1",
        "onceward_store_call_seconds_count{call=\"scan\"} 0",
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"2\"} 0",
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"4\"} 1",
        "onceward_store_batch_records_sum{call=\"swap\"} 3",
        "onceward_store_calls_under_way 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
    }
}

/// The sizes of groups come from the store, not from the size of each call.
#[tokio::test]
async fn a_store_that_batches_internally_reports_its_own_group_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let opened =
        onceward_stores::open_with_metrics(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let (store, metrics) = measure(opened.store, opened.group_commits);
    store.swap(&[swap("a"), swap("b"), swap("c")]).await.unwrap();
    store.swap(&[swap("d")]).await.unwrap();
    let text = text(&metrics);
    for line in [
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"1\"} 1",
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"4\"} 2",
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"+Inf\"} 2",
        "onceward_store_batch_records_sum{call=\"swap\"} 4",
        "onceward_store_batch_records_count{call=\"swap\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
    }
}

/// A store that fails in the chosen way.
enum FaultyStore {
    /// Every call fails; a swap may have been applied.
    Fails,
    /// Every call succeeds, and each record in it fails.
    FailsEach,
    NeverAnswers,
}

impl Store for FaultyStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let gone = || Error::new(ErrorKind::Unavailable, "gone").maybe_applied();
        Box::pin(async move {
            match self {
                Self::Fails => Err(gone()),
                Self::FailsEach => Ok(batch.iter().map(|_| Swapped::Failed(gone())).collect()),
                Self::NeverAnswers => std::future::pending().await,
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let gone = || Error::new(ErrorKind::Damaged, "gone");
        Box::pin(async move {
            match self {
                Self::FailsEach => Ok(ids.iter().map(|_| Err(gone())).collect()),
                _ => Err(gone()),
            }
        })
    }

    fn scan<'a>(&'a self, _: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async { Ok(Page::default()) })
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        MemoryStore::new().caps()
    }
}

#[tokio::test]
async fn a_failure_of_a_single_record_is_counted() {
    let (store, metrics) = measure(Arc::new(FaultyStore::FailsEach), None);
    store.swap(&[swap("a"), swap("b")]).await.unwrap();
    store.load(&[Id::new("s", "o", "a").unwrap()]).await.unwrap();
    let text = text(&metrics);
    assert!(text.contains("errors_total{call=\"swap\",applied=\"maybe\"} 2"), "{text}");
    assert!(text.contains("errors_total{call=\"load\",applied=\"no\"} 1"), "{text}");
}

#[tokio::test]
async fn a_failure_is_counted_by_whether_it_may_have_been_applied() {
    let (store, metrics) = measure(Arc::new(FaultyStore::Fails), None);
    store.swap(&[swap("a")]).await.unwrap_err();
    store.load(&[]).await.unwrap_err();
    let text = text(&metrics);
    assert!(text.contains("errors_total{call=\"swap\",applied=\"maybe\"} 1"), "{text}");
    assert!(text.contains("errors_total{call=\"swap\",applied=\"no\"} 0"), "{text}");
    assert!(text.contains("errors_total{call=\"load\",applied=\"no\"} 1"), "{text}");
}

#[tokio::test]
async fn a_dropped_call_is_no_longer_in_progress() {
    let (store, metrics) = measure(Arc::new(FaultyStore::NeverAnswers), None);
    let batch = [swap("a")];
    let mut call = store.swap(&batch);
    assert!(matches!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await,
        std::task::Poll::Pending
    ));
    assert!(text(&metrics).contains("calls_under_way 1"));
    drop(call);
    assert!(text(&metrics).contains("calls_under_way 0"));
    assert!(text(&metrics).contains("onceward_store_call_seconds_count{call=\"swap\"} 0"));
}

#[test]
fn bounds_are_inclusive_and_print_as_short_decimals() {
    let histogram = Histogram::new(&[50, 250]);
    for value in [50, 51, 250, 251] {
        histogram.add(value);
    }
    let mut out = String::new();
    histogram.write(&mut out, "h", ("call", "x"), 1e-6);
    assert_eq!(
        out,
        "h_bucket{call=\"x\",le=\"0.00005\"} 1\n\
         h_bucket{call=\"x\",le=\"0.00025\"} 3\n\
         h_bucket{call=\"x\",le=\"+Inf\"} 4\n\
         h_sum{call=\"x\"} 0.000602\n\
         h_count{call=\"x\"} 4\n"
    );
}
