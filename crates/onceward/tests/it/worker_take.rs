//! Workers over a store that hands out due records and writes their claims in one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Ask, Fingerprint, Lease, OnUnknown, Onceward, Outcome, Policy, Scan, ScanTarget, State, Stopped, Worker,
    WorkerBuilder, WorkerOptions,
};

use crate::cluster::{Cluster, Fault, id, run_ready_tasks, secs};

fn policy(on_unknown: OnUnknown) -> Arc<Policy> {
    Arc::new(Policy::http().to_builder().with_on_unknown(on_unknown).with_lease(secs(10)).build().unwrap())
}

fn ask(key: &str) -> Ask {
    Ask::new(id(key), Fingerprint::of(b"what was asked"), policy(OnUnknown::Retry)).with_input("12")
}

async fn enqueue(onceward: &Onceward, count: usize) {
    for number in 0..count {
        onceward.enqueue(ask(&format!("task-{number:03}"))).await.unwrap();
    }
}

fn builder(onceward: &Onceward, concurrency: usize) -> WorkerBuilder {
    Worker::builder(onceward.clone())
        .with_options(WorkerOptions::default().with_concurrency(concurrency).with_pause(secs(1)))
}

async fn done(onceward: &Onceward, count: usize) -> usize {
    let mut done = 0;
    for number in 0..count {
        let receipt = onceward.receipt(&id(&format!("task-{number:03}"))).await.unwrap().unwrap();
        done += usize::from(receipt.status.state() == State::Done);
    }
    done
}

/// A busy worker writes its outcomes with its next claims: one batch for as many tasks as it may work on.
#[tokio::test(start_paused = true)]
async fn outcomes_are_written_with_the_next_claims() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    enqueue(&onceward, 100).await;
    let worker = builder(&onceward, 10)
        .with_operation("charge", policy(OnUnknown::Retry), async |_| Ok(Outcome::succeeded("paid")))
        .build()
        .unwrap();
    let before = cluster.store.batches().len();
    worker.run_until(tokio::time::sleep(secs(5))).await;
    assert_eq!(worker.counts().finished, 100);
    assert_eq!(cluster.store.batches()[before..], [10, 20, 20, 20, 20, 20, 20, 20, 20, 20, 10]);
}

/// The concurrency bounds what is worked on, also while outcomes wait for the store.
#[tokio::test(start_paused = true)]
async fn no_more_is_taken_than_may_be_worked_on() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    enqueue(&onceward, 50).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (now.clone(), most.clone());
    let work = move |_: Lease| {
        let (counted, highest) = (counted.clone(), highest.clone());
        async move {
            highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            counted.fetch_sub(1, Ordering::SeqCst);
            Ok(Outcome::succeeded("paid"))
        }
    };
    let worker =
        builder(&onceward, 7).with_operation("charge", policy(OnUnknown::Retry), work).build().unwrap();
    worker.run_until(tokio::time::sleep(secs(5))).await;
    assert_eq!((worker.counts().finished, most.load(Ordering::SeqCst)), (50, 7));
}

/// Whatever happens to a take, each task is done, and none under two claims at once.
#[tokio::test(start_paused = true)]
async fn a_take_that_fails_costs_nothing_but_time() {
    for fault in [Fault::Refuse, Fault::LoseReply, Fault::LoseWrite] {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        enqueue(&onceward, 20).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let work = move |_: Lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::succeeded("paid")) }
        };
        let worker =
            builder(&onceward, 5).with_operation("charge", policy(OnUnknown::Retry), work).build().unwrap();
        cluster.store.script([Fault::Pass, fault, Fault::Pass, fault]);
        worker.run_until(tokio::time::sleep(secs(120))).await;
        assert_eq!(done(&onceward, 20).await, 20, "{fault:?}");
        assert_eq!(
            runs.load(Ordering::SeqCst),
            20,
            "{fault:?}: a claim that was lost is released, never run twice"
        );
    }
}

/// A worker that is dropped while its claims are on their way releases them: nothing had begun.
#[tokio::test(start_paused = true)]
async fn a_worker_dropped_during_a_take_leaves_nothing_claimed() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    enqueue(&onceward, 5).await;
    let worker = builder(&onceward, 5)
        .with_operation("charge", policy(OnUnknown::Hold), async |_| panic!("its worker is gone"))
        .build()
        .unwrap();
    cluster.store.close_gate();
    assert!(tokio::time::timeout(secs(1), worker.run_until(std::future::pending())).await.is_err());
    drop(worker);
    cluster.store.open_gate();
    run_ready_tasks().await;
    tokio::time::advance(secs(1)).await;
    run_ready_tasks().await;
    for number in 0..5 {
        let receipt = onceward.receipt(&id(&format!("task-{number:03}"))).await.unwrap().unwrap();
        assert_eq!(receipt.status.state(), State::Waiting, "task {number}");
    }
}

/// A worker that is stopped while its claims are on their way begins nothing more, and counts no try.
#[tokio::test(start_paused = true)]
async fn a_worker_stopped_during_a_take_begins_nothing() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    enqueue(&onceward, 5).await;
    let worker = builder(&onceward, 5)
        .with_operation("charge", policy(OnUnknown::Hold), async |_| panic!("its worker was stopped"))
        .build()
        .unwrap();
    cluster.store.close_gate();
    let open = async {
        tokio::time::sleep(secs(1)).await;
        cluster.store.open_gate();
    };
    tokio::join!(worker.run_until(tokio::time::sleep(Duration::from_millis(500))), open);
    run_ready_tasks().await;
    tokio::time::advance(secs(1)).await;
    run_ready_tasks().await;
    for number in 0..5 {
        let receipt = onceward.receipt(&id(&format!("task-{number:03}"))).await.unwrap().unwrap();
        assert_eq!(receipt.status.state(), State::Waiting, "task {number}");
        assert_eq!(receipt.status.job().unwrap().started, 0, "task {number}");
    }
}

/// What has no code here is in front: the worker goes past it, and leaves it to others.
#[tokio::test(start_paused = true)]
async fn what_has_no_code_is_no_obstacle() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    for number in 0..30 {
        let other = onceward::Id::new("tenant", "other", &format!("{number:03}")).unwrap();
        let asked = Ask::new(other, Fingerprint::of(b"x"), policy(OnUnknown::Retry)).with_input("x");
        onceward.enqueue(asked).await.unwrap();
    }
    tokio::time::advance(secs(1)).await;
    enqueue(&onceward, 30).await;
    let worker = builder(&onceward, 4)
        .with_operation("charge", policy(OnUnknown::Retry), async |_| Ok(Outcome::succeeded("paid")))
        .build()
        .unwrap();
    worker.run_until(tokio::time::sleep(secs(5))).await;
    let counts = worker.counts();
    assert_eq!((counts.finished, counts.no_code), (30, 30));
    // When the others are done, it takes again.
    let others = builder(&onceward, 4)
        .with_operation("other", policy(OnUnknown::Retry), async |_| Ok(Outcome::succeeded("paid")))
        .build()
        .unwrap();
    others.run_until(tokio::time::sleep(secs(5))).await;
    worker.run_until(tokio::time::sleep(secs(2))).await;
    assert_eq!(worker.counts().no_code, 0);
}

/// A backlog of others' intents is not read at every look, and what comes behind it is found at once. In time it is read again:
/// it may be this worker's by then, or gone.
#[tokio::test(start_paused = true)]
async fn a_backlog_of_others_is_passed_over() {
    const BACKLOG: usize = 5_000;
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let other = |number: usize| onceward::Id::new("tenant", "other", &format!("{number:04}")).unwrap();
    for number in 0..BACKLOG {
        let asked = Ask::new(other(number), Fingerprint::of(b"x"), policy(OnUnknown::Retry)).with_input("x");
        onceward.enqueue(asked).await.unwrap();
    }
    tokio::time::advance(secs(20)).await;
    let worker = builder(&onceward, 4)
        .with_operation("charge", policy(OnUnknown::Retry), async |_| Ok(Outcome::succeeded("paid")))
        .build()
        .unwrap();
    let arrivals = async {
        for number in 0..30 {
            tokio::time::sleep(secs(1)).await;
            onceward.enqueue(ask(&format!("task-{number:03}"))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(done(&onceward, number + 1).await, number + 1);
        }
    };
    tokio::select! {
        () = worker.run_until(std::future::pending()) => unreachable!("nobody stops it"),
        () = arrivals => {}
    }
    assert_eq!((worker.counts().finished, worker.counts().no_code), (30, BACKLOG as u64));
    // The last page of the backlog is not full, and is read at every look.
    let rest = BACKLOG % 256 + 256;
    let looks = 50 * 30;
    let scanned = cluster.store.scanned();
    assert!(scanned < 2 * BACKLOG + looks * rest, "{scanned} records were read");
    for number in 0..BACKLOG {
        onceward.cancel(&other(number), &policy(OnUnknown::Retry)).await.unwrap();
    }
    worker.run_until(tokio::time::sleep(secs(90))).await;
    assert_eq!(worker.counts().no_code, 0);
}

/// A step waits for its intent, and no worker begins it: it must not be all that a take ever sees.
#[tokio::test(start_paused = true)]
async fn a_step_that_waits_is_no_obstacle() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let gives_up_its_step = async |lease: Lease| {
        let step = lease.step("mail", async |_| Err(Stopped::unknown("no answer"))).await;
        assert!(step.is_err());
        Ok(Outcome::succeeded("without a mail"))
    };
    onceward.run(ask("parent"), gives_up_its_step).await.unwrap().into_result().unwrap();
    // The step waits for an intent that is done, and is due before everything else.
    tokio::time::sleep(secs(48 * 3_600)).await;
    let waits = Scan::new(ScanTarget::Due(Some(State::Waiting)), 10);
    assert_eq!(onceward.list(&waits).await.unwrap().found.len(), 1);
    enqueue(&onceward, 3).await;
    let worker = builder(&onceward, 1)
        .with_operation("charge", policy(OnUnknown::Retry), async |_| Ok(Outcome::succeeded("paid")))
        .build()
        .unwrap();
    worker.run_until(tokio::time::sleep(secs(5))).await;
    assert_eq!(done(&onceward, 3).await, 3);
}

/// Leases that lapsed are found beside a backlog that never ends.
#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_does_not_wait_behind_a_backlog() {
    let cluster = Cluster::new();
    let (doomed, kill) = cluster.killable_process();
    let asked = ask("left");
    let run = tokio::spawn(async move { doomed.run(asked, async |_| std::future::pending().await).await });
    run_ready_tasks().await;
    kill.now();
    run.abort();
    tokio::time::advance(secs(30)).await;
    let onceward = cluster.process();
    enqueue(&onceward, 200).await;
    let more = onceward.clone();
    // Each task enqueues another one.
    let work = move |lease: Lease| {
        let onceward = more.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if lease.id().key() != "left" {
                let next = ask(&format!("after {}", lease.fence().0));
                onceward.enqueue(next).await.map_err(|error| Stopped::before_effect(error.to_string()))?;
            }
            Ok(Outcome::succeeded("paid"))
        }
    };
    let worker =
        builder(&onceward, 4).with_operation("charge", policy(OnUnknown::Retry), work).build().unwrap();
    worker.run_until(tokio::time::sleep(secs(3))).await;
    let left = onceward.receipt(&id("left")).await.unwrap().unwrap();
    assert_eq!(left.status.state(), State::Done, "it lapsed before any of the others was enqueued");
}

/// What one task has written does not wait for the code of another that keeps the thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_code_holds_up_no_outcome() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    enqueue(&onceward, 3).await;
    let (seen, store) = (Arc::new(AtomicUsize::new(0)), onceward.clone());
    let (found, begun) = (seen.clone(), Arc::new(AtomicUsize::new(0)));
    let work = move |_: Lease| {
        let (found, store, turn) = (found.clone(), store.clone(), begun.fetch_add(1, Ordering::SeqCst));
        async move {
            if turn > 0 {
                // Keeps the thread for longer than a pass may last.
                std::thread::sleep(Duration::from_millis(8));
            }
            if turn == 2 {
                // By now the outcome of the first was sent, although the pass goes on.
                found.store(done(&store, 3).await, Ordering::SeqCst);
            }
            Ok(Outcome::succeeded("paid"))
        }
    };
    let worker =
        builder(&onceward, 3).with_operation("charge", policy(OnUnknown::Retry), work).build().unwrap();
    worker.run_until(tokio::time::sleep(Duration::from_millis(500))).await;
    assert_eq!(worker.counts().finished, 3);
    assert!(seen.load(Ordering::SeqCst) >= 1, "the first outcome waited for the third's code");
}
