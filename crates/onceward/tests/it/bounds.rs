//! Every bound, and what happens at it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use onceward::{
    Answer, Caps, Choose, ErrorKind, Id, Limits, Loaded, Onceward, Outcome, Page, Policy, Refusal, Scan,
    State, Store, StoreFuture, Swap, Swapped, Verdict,
};
use onceward_stores::MemoryStore;

use crate::cluster::{Cluster, ask, never, paid, run_ready_tasks};

fn limited(cluster: &Cluster, limits: Limits) -> Onceward {
    Onceward::builder(cluster.store.clone()).accept_volatile().with_limits(limits).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn claims_beyond_the_queue_are_turned_away_but_completions_never() {
    let cluster = Cluster::new();
    let onceward = limited(&cluster, Limits::default().with_queue_claims_max(3));
    cluster.store.close_gate();
    let mut asks = tokio::task::JoinSet::new();
    for at in 0..10 {
        let onceward = onceward.clone();
        asks.spawn(async move { onceward.run(ask(&format!("k{at}"), &Policy::http()), paid).await });
    }
    run_ready_tasks().await;
    cluster.store.open_gate();
    let answers = asks.join_all().await;
    let overloaded =
        answers.iter().filter(|answer| answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::Overloaded));
    assert_eq!(overloaded.count(), 5, "one by itself, one in flight, three queued");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
}

#[tokio::test(start_paused = true)]
async fn batches_are_bounded_in_number_and_bytes() {
    let cluster = Cluster::new();
    let onceward = limited(&cluster, Limits::default().with_batch_swaps_max(8).with_batch_bytes_max(1_000));
    cluster.store.close_gate();
    let mut asks = tokio::task::JoinSet::new();
    for at in 0..34 {
        let onceward = onceward.clone();
        let work = async |_| Ok(Outcome::succeeded(vec![b'x'; 400]));
        asks.spawn(async move { onceward.run(ask(&format!("k{at}"), &Policy::http()), work).await.unwrap() });
    }
    run_ready_tasks().await;
    cluster.store.open_gate();
    asks.join_all().await;
    let batches = cluster.store.batches();
    assert_eq!(batches[..6], [1, 1, 8, 8, 8, 8], "claims of 64 bytes: eight to a batch");
    assert!(
        batches[6..].iter().all(|size| *size <= 2),
        "completions of 480 bytes: two to a batch, {batches:?}"
    );
    assert_eq!(batches.iter().sum::<usize>(), 68);
}

/// A caller that finds the store idle drives its own swap, and may stop doing so.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_polled_once_and_kept_holds_nobody_up() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.close_gate();
    let policy = Policy::http();
    let mut kept = Box::pin(onceward.run(ask("kept", &policy), paid));
    assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    cluster.store.open_gate();
    for at in 0..10 {
        onceward.run(ask(&format!("k{at}"), &policy), paid).await.unwrap();
    }
    assert!(kept.await.unwrap().into_result().is_ok(), "it goes on where it was left");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_too_many_is_told_at_once() {
    let cluster = Cluster::new();
    let onceward = limited(&cluster, Limits::default().with_waiters_max(2));
    for _ in 0..3 {
        let onceward = onceward.clone();
        tokio::spawn(async move {
            onceward.run(ask("k", &Policy::http()), async |_| std::future::pending().await).await
        });
    }
    run_ready_tasks().await;
    let refused = onceward.run(ask("k", &Policy::http()), never).await.unwrap();
    assert!(matches!(refused, Answer::Refused(Refusal::InProgress { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_bound_reaches_its_caller_and_leaves_a_note() {
    let cluster = Cluster::new();
    let onceward = limited(&cluster, Limits::default().with_body_bytes_max(10));
    for (len, stored) in [(10, true), (11, false)] {
        let key = format!("k{len}");
        let body = vec![b'x'; len];
        let work = async |_| Ok(Outcome::succeeded(body.clone()));
        let first = onceward.run(ask(&key, &Policy::http()), work).await.unwrap().into_result().unwrap();
        assert_eq!(first.outcome.body(), &body, "the first caller gets it whole");
        match onceward.run(ask(&key, &Policy::http()), never).await.unwrap() {
            Answer::Completed(completed) => assert!(stored && completed.outcome.body() == &body),
            Answer::Refused(Refusal::ResponseNotStored { verdict, note }) => {
                assert!(!stored && verdict == Verdict::Succeeded);
                assert_eq!(note, "11 bytes, 10 are the most that is stored");
            }
            Answer::Refused(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(onceward.counts().bodies_omitted, 1);
}

#[tokio::test(start_paused = true)]
async fn the_cache_stays_within_its_bytes() {
    let cluster = Cluster::new();
    let onceward = limited(&cluster, Limits::default().with_cache_bytes_max(1_000_000));
    for at in 0..4_000 {
        let work = async |_| Ok(Outcome::succeeded(vec![b'x'; 1_000]));
        onceward.run(ask(&format!("k{at}"), &Policy::http()), work).await.unwrap();
        onceward.run(ask(&format!("k{at}"), &Policy::http()), never).await.unwrap();
    }
    let before = onceward.counts();
    for at in (0..4_000).rev() {
        onceward.run(ask(&format!("k{at}"), &Policy::http()), never).await.unwrap().into_result().unwrap();
    }
    let cached = onceward.counts().replays_cached - before.replays_cached;
    assert!(
        (100..=1_000).contains(&cached),
        "{cached} receipts of 1,000 bytes were cached in 1,000,000 bytes"
    );
}

#[test]
fn bounds_that_let_nothing_through_are_refused() {
    for limits in [
        Limits::default().with_batch_swaps_max(0),
        Limits::default().with_queue_claims_max(0),
        Limits::default().with_body_bytes_max(usize::MAX),
    ] {
        let builder = Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile();
        assert_eq!(builder.with_limits(limits).build().unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_store_that_forgets_must_be_accepted_out_loud() {
    let error = Onceward::new(Arc::new(MemoryStore::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit);
    assert!(error.to_string().contains("accept_volatile()"), "{error}");
}

#[test]
fn a_store_that_does_not_decide_races_is_never_accepted() {
    struct Racy(MemoryStore);
    impl Store for Racy {
        fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
            self.0.swap(batch)
        }
        fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
            self.0.load(ids)
        }
        fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
            self.0.scan(query)
        }
        fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
            None
        }

        fn watch(&self) -> Option<onceward::Watch> {
            self.0.watch()
        }
        fn caps(&self) -> Caps {
            let promises = self.0.caps().promises.with_atomic(false).with_durable(true);
            Caps::new("racy", promises)
        }
    }
    let error = Onceward::builder(Arc::new(Racy(MemoryStore::new()))).accept_volatile().build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit);
    assert!(error.to_string().contains("racy"), "{error}");
}
