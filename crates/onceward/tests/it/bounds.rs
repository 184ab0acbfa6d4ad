//! Every bound, and what happens at it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use onceward::{
    Answer, Caps, Changed, Choose, Claimed, ErrorKind, Id, KeepInput, Limits, Loaded, OnUnknown, Onceward,
    Outcome, Page, Policy, Recorded, Refusal, Scan, Settlement, State, Stopped, Store, StoreFuture, Swap,
    Swapped, Verdict,
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

/// A store of small records, as DynamoDB and etcd are: it says so, or it turns out at the first large one.
struct SmallRecords {
    inner: MemoryStore,
    bytes_max: usize,
    says: bool,
}

impl Store for SmallRecords {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for swap in batch {
                let bytes = swap.new.as_ref().map_or(0, |new| new.bytes.len());
                answers.push(if bytes > self.bytes_max {
                    Swapped::Failed(onceward::Error::new(ErrorKind::Invalid, "it is too large"))
                } else {
                    self.inner.swap(std::slice::from_ref(swap)).await?.pop().unwrap()
                });
            }
            Ok(answers)
        })
    }
    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.inner.load(ids)
    }
    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }
    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }
    fn watch(&self) -> Option<onceward::Watch> {
        None
    }
    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        let bytes_max = if self.says { self.bytes_max } else { caps.promises.record_bytes_max };
        Caps::new("small records", caps.promises.with_record_bytes_max(bytes_max))
    }
}

fn small_records(says: bool) -> Onceward {
    let store = SmallRecords { inner: MemoryStore::new(), bytes_max: 8 << 10, says };
    Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap()
}

/// An outcome and the input that is kept with it are in one record. Whatever their sizes, the outcome can be recorded.
#[tokio::test(start_paused = true)]
async fn an_outcome_always_fits_beside_its_input() {
    let keep = KeepInput::WithReceipt;
    let policy = Policy::http().to_builder().with_keep_input(keep).build().unwrap();
    let onceward = small_records(true);
    let (input_max, body_max) = (onceward.input_bytes_max(), onceward.body_bytes_max());
    assert!(input_max > 7_000 && body_max > 7_000);
    for (at, (input, body, fits)) in [
        (input_max, body_max, false),
        (input_max, 0, true),
        (10, body_max - 10, true),
        (11, body_max - 10, false),
    ]
    .into_iter()
    .enumerate()
    {
        let outcome = Outcome::succeeded(vec![b'b'; body]);
        let asked = |how: &str| ask(&format!("{how}{at}"), &policy).with_input(vec![b'i'; input]);
        // By a run, by a ticket, and by a settlement.
        let run = onceward.run(asked("run"), async |_| Ok(outcome.clone())).await.unwrap();
        assert_eq!(run.into_result().unwrap().recorded, Recorded::Yes);
        let Claimed::Granted(ticket) = onceward.claim(asked("ticket")).await.unwrap() else { panic!("free") };
        for _ in 0..2 {
            assert_eq!(onceward.complete(&ticket, outcome.clone()).await.unwrap(), Changed::Applied);
        }
        let unknown = asked("settled");
        let id = unknown.id().clone();
        onceward.run(unknown, async |_| Err(Stopped::unknown("no answer"))).await.unwrap_err();
        let fence = onceward.receipt(&id).await.unwrap().unwrap().status.fence();
        let settlement = Settlement::Done(outcome.clone());
        assert_eq!(onceward.settle(&id, fence, &settlement, &policy).await.unwrap(), Changed::Applied);
        for how in ["run", "ticket", "settled"] {
            let receipt = onceward.receipt(asked(how).id()).await.unwrap().unwrap();
            assert_eq!(receipt.status.job().unwrap().input.len(), input);
            let is_kept = matches!(receipt.status.outcome().unwrap().snapshot(), onceward::Snapshot::Kept(_));
            assert_eq!(is_kept, fits, "{how}: {input} + {body}");
        }
    }
}

/// A record that the store will never take is not written again and again: the outcome is recorded without its body.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_refuses_is_recorded_without_its_body() {
    for on_unknown in [OnUnknown::Hold, OnUnknown::Retry] {
        let onceward = small_records(false);
        let policy = Policy::http().to_builder().with_on_unknown(on_unknown).build().unwrap();
        let large = async |_| Ok(Outcome::succeeded(vec![b'x'; 10_000]));
        let completed = onceward.run(ask("k", &policy), large).await.unwrap().into_result().unwrap();
        assert_eq!((completed.recorded, completed.outcome.body().len()), (Recorded::Yes, 10_000));
        let refused = onceward.run(ask("k", &policy), never).await.unwrap();
        let Answer::Refused(Refusal::ResponseNotStored { verdict, note }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((verdict, &note[..]), (Verdict::Succeeded, &b"not stored: the store refused it"[..]));
        let counts = onceward.counts();
        assert_eq!((counts.bodies_omitted, counts.completions, counts.completions_delayed), (1, 1, 0));
    }
}

/// If it refuses even that, the run ends there, and its caller still gets the answer.
#[tokio::test(start_paused = true)]
async fn an_ending_that_the_store_refuses_altogether_is_given_up() {
    let store = SmallRecords { inner: MemoryStore::new(), bytes_max: 77, says: false };
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let completed = onceward.run(ask("k", &Policy::http()), async |_| Ok(Outcome::succeeded(vec![b'x'; 80])));
    let completed = completed.await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet);
    assert_eq!(onceward.counts().completions_given_up, 1);
    assert!(onceward.unwritten_outcomes().is_empty(), "nothing is retried");
}
