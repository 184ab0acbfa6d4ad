//! Tests of memory transactions: visibility, waiting, deadlocks and rollback.

use std::sync::atomic::{AtomicUsize, Ordering};

use std::future::Future;

use onceward::{Applied, Seen, State as Receipt, Store};

use super::*;

fn id(key: &str) -> Id {
    Id::new("scope", "operation", key).unwrap()
}

fn put(key: &str, seen: Seen, bytes: &'static str) -> Swap {
    let record = Record::new(Receipt::Held, bytes);
    Swap { id: id(key), seen, new: Some(record) }
}

fn won(answers: &[Swapped]) -> Version {
    match answers {
        [Swapped::Won(version)] => *version,
        other => panic!("{other:?}"),
    }
}

async fn bytes_of(store: &MemoryStore, key: &str) -> Option<String> {
    let found = store.load(&[id(key)]).await.unwrap().remove(0).unwrap();
    found.map(|found| String::from_utf8(found.bytes.to_vec()).unwrap())
}

fn add_one(number: &AtomicUsize) {
    number.fetch_add(1, Ordering::SeqCst);
}

/// Polls once: what does not wait is ready.
async fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn receipts_and_own_writes_commit_together_or_not_at_all() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let written = Arc::new(AtomicUsize::new(0));
    for (ends_in_commit, expected) in [(false, 0), (true, 1)] {
        let mut tx = transactions.open();
        won(&tx.swap(&[put("a", Seen::Absent, "x")]).await.unwrap());
        let writes = Arc::clone(&written);
        tx.on_commit(move || add_one(&writes)).unwrap();
        assert_eq!(bytes_of(&store, "a").await, None);
        if ends_in_commit {
            tx.commit().unwrap();
        } else {
            drop(tx);
        }
        assert_eq!(bytes_of(&store, "a").await.is_some(), ends_in_commit);
        assert_eq!(written.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn it_sees_its_own_writes() {
    let store = MemoryStore::new();
    let mut tx = MemoryTransactions::new(&store).open();
    let first = won(&tx.swap(&[put("a", Seen::Absent, "x")]).await.unwrap());
    let lost = tx.swap(&[put("a", Seen::Absent, "y")]).await.unwrap();
    assert!(matches!(&lost[..], [Swapped::Lost(Some(found))] if found.version == first), "{lost:?}");
    let removal = Swap { id: id("a"), seen: Seen::Version(first), new: None };
    won(&tx.swap(&[removal]).await.unwrap());
    let second = won(&tx.swap(&[put("a", Seen::Absent, "z")]).await.unwrap());
    assert!(second > first);
    tx.commit().unwrap();
    assert_eq!(bytes_of(&store, "a").await.as_deref(), Some("z"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_sorted_or_names_an_id_twice_is_refused() {
    let mut tx = MemoryTransactions::new(&MemoryStore::new()).open();
    for keys in [["b", "a"], ["a", "a"]] {
        let error = tx.swap(&keys.map(|key| put(key, Seen::Absent, "x"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{keys:?}");
    }
    assert_eq!(tx.swap(&["a", "b"].map(|key| put(key, Seen::Absent, "x"))).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_transaction_is_busy_or_waits_for_the_first() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let claim = put("a", Seen::Absent, "x");
    let (first, _) = transactions.begin(&claim, None, Duration::ZERO).await.unwrap();
    let second = transactions.begin(&claim, None, Duration::from_secs(5)).await;
    assert!(matches!(second, Err(Fault::Busy)));
    let begin = || transactions.begin(&claim, None, Duration::from_secs(5));
    let (second, ()) = tokio::join!(begin(), async { drop(first) });
    assert!(matches!(second, Ok((_, Swapped::Won(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_swap_of_the_store_waits_only_where_it_would_win() {
    let store = MemoryStore::new();
    let there = won(&store.swap(&[put("a", Seen::Absent, "x")]).await.unwrap());
    let mut tx = MemoryTransactions::new(&store).open();
    won(&tx.swap(&[put("a", Seen::Version(there), "y")]).await.unwrap());

    let batch = [put("a", Seen::Absent, "z")];
    assert!(
        matches!(ready(store.swap(&batch)).await, Some(Ok(lost)) if matches!(lost[..], [Swapped::Lost(_)]))
    );
    let batch = [put("a", Seen::Version(there), "z"), put("b", Seen::Absent, "beside")];
    assert!(ready(store.swap(&batch)).await.is_none());
    assert_eq!(
        bytes_of(&store, "b").await.as_deref(),
        Some("beside"),
        "the other swap of the batch does not wait"
    );
    let (swapped, ()) = tokio::join!(store.swap(&batch[..1]), async { tx.commit().unwrap() });
    assert!(matches!(&swapped.unwrap()[..], [Swapped::Lost(Some(_))]));
    assert_eq!(bytes_of(&store, "a").await.as_deref(), Some("y"));
}

#[tokio::test(start_paused = true)]
async fn a_deadlock_is_detected() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let (mut one, mut two) = (transactions.open(), transactions.open());
    won(&one.swap(&[put("a", Seen::Absent, "1")]).await.unwrap());
    two.lock("counter").await.unwrap();
    let a = [put("a", Seen::Absent, "2")];
    let (waits, undone) = tokio::join!(one.lock("counter"), two.swap(&a));
    waits.unwrap();
    let undone = undone.unwrap_err();
    assert_eq!((undone.kind(), undone.applied()), (ErrorKind::Conflict, Applied::No));
    assert!(transactions.is_worth_repeating(&undone));
    let over = two.commit().unwrap_err();
    assert!(!transactions.is_worth_repeating(&over));
    one.commit().unwrap();
    assert_eq!(bytes_of(&store, "a").await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_loses_commits_nothing() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let claim = put("a", Seen::Absent, "x");
    let (tx, _) = transactions.begin(&claim, None, Duration::ZERO).await.unwrap();
    let mut other = tx.clone();
    let completion = put("a", Seen::Version(Version(1)), "y");
    assert!(matches!(transactions.commit(tx, &completion).await, Err(Fault::Failed(_))));
    assert_eq!(bytes_of(&store, "a").await, None);
    assert_eq!(other.swap(&[claim]).await.unwrap_err().kind(), ErrorKind::Invalid, "it is over");
    assert!(store.shared.state().locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_given_up_does_not_count() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let (one, two) = (transactions.open(), transactions.open());
    one.lock("a").await.unwrap();
    two.lock("b").await.unwrap();
    assert!(ready(one.lock("b")).await.is_none());
    // No deadlock any more, so this one waits until its timeout.
    let error = two.lock("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn ages_go_on_through_a_transaction() {
    let store = MemoryStore::new();
    let first = won(&store.swap(&[put("a", Seen::Absent, "x")]).await.unwrap());
    let mut tx = MemoryTransactions::new(&store).open();
    won(&tx.swap(&[put("a", Seen::Version(first), "y")]).await.unwrap());
    tx.commit().unwrap();
    let created = store.shared.state().rows.there(&id("a")).unwrap().created;
    assert_eq!(created, first.0);
}
