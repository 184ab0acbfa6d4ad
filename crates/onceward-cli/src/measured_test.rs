use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::{Error, ErrorKind, Id, Record, Seen, State};
use onceward_stores::MemoryStore;

use super::*;

fn swap(key: &str) -> Swap {
    let record = Record::new(State::Held, Bytes::new()).with_due_in(Some(Duration::from_secs(1)));
    Swap { id: Id::new("s", "o", key).unwrap(), seen: Seen::Absent, new: Some(record) }
}

fn text(measures: &Measures) -> String {
    let mut out = String::new();
    measures.write(&mut out);
    out
}

#[tokio::test]
async fn each_call_is_counted_with_its_size() {
    let (store, measures) = watch(Arc::new(MemoryStore::new()), None);
    store.swap(&[swap("a"), swap("b"), swap("c")]).await.unwrap();
    store.load(&[Id::new("s", "o", "a").unwrap()]).await.unwrap();
    let text = text(&measures);
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

/// Swaps that came one by one, and travelled together all the same.
#[tokio::test]
async fn a_store_that_makes_groups_says_itself_how_large_its_groups_were() {
    let folder = tempfile::tempdir().unwrap();
    let (store, measures) = open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    store.swap(&[swap("a"), swap("b"), swap("c")]).await.unwrap();
    store.swap(&[swap("d")]).await.unwrap();
    let text = text(&measures);
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

/// A store as bad as it is told to be.
enum Poor {
    /// Every call fails; a swap may have happened all the same.
    Fails,
    /// Every call answers, and each record has a failure of its own.
    FailsEach,
    NeverAnswers,
}

impl Store for Poor {
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

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        MemoryStore::new().caps()
    }
}

#[tokio::test]
async fn a_failure_of_one_record_is_counted_too() {
    let (store, measures) = watch(Arc::new(Poor::FailsEach), None);
    store.swap(&[swap("a"), swap("b")]).await.unwrap();
    store.load(&[Id::new("s", "o", "a").unwrap()]).await.unwrap();
    let text = text(&measures);
    assert!(text.contains("errors_total{call=\"swap\",applied=\"maybe\"} 2"), "{text}");
    assert!(text.contains("errors_total{call=\"load\",applied=\"no\"} 1"), "{text}");
}

#[tokio::test]
async fn a_failure_is_counted_by_what_it_may_have_left_behind() {
    let (store, measures) = watch(Arc::new(Poor::Fails), None);
    store.swap(&[swap("a")]).await.unwrap_err();
    store.load(&[]).await.unwrap_err();
    let text = text(&measures);
    assert!(text.contains("errors_total{call=\"swap\",applied=\"maybe\"} 1"), "{text}");
    assert!(text.contains("errors_total{call=\"swap\",applied=\"no\"} 0"), "{text}");
    assert!(text.contains("errors_total{call=\"load\",applied=\"no\"} 1"), "{text}");
}

#[tokio::test]
async fn a_call_that_is_dropped_is_no_longer_under_way() {
    let (store, measures) = watch(Arc::new(Poor::NeverAnswers), None);
    let batch = [swap("a")];
    let mut call = store.swap(&batch);
    assert!(matches!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await,
        std::task::Poll::Pending
    ));
    assert!(text(&measures).contains("calls_under_way 1"));
    drop(call);
    assert!(text(&measures).contains("calls_under_way 0"));
    assert!(text(&measures).contains("onceward_store_call_seconds_count{call=\"swap\"} 0"));
}

#[test]
fn bounds_are_inclusive_and_print_as_a_person_would_write_them() {
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
