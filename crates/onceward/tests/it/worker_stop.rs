//! The end of a worker: told to stop, or dropped.

use std::time::Duration;

use onceward::{
    Ask, Backoff, Fingerprint, Lease, OnUnknown, Outcome, Policy, State, Stopped, Worker, WorkerOptions,
};
use tokio::sync::mpsc;

use crate::cluster::{Cluster, id, secs};

fn policy() -> Policy {
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(100));
    let queue = Policy::queue().to_builder().with_on_unknown(OnUnknown::Retry);
    queue.with_tries_max(2).with_backoff(backoff).build().unwrap()
}

fn ask(key: &str) -> Ask {
    Ask::new(id(key), Fingerprint::of(b"same"), policy()).with_input("x")
}

/// All that may run at once is running: what runs is told to stop all the same, and goes on elsewhere without a try counted.
#[tokio::test(start_paused = true)]
async fn work_sees_that_its_worker_is_told_to_stop() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let (begun, mut begins) = mpsc::unbounded_channel();
    let work = move |lease: Lease| {
        let begun = begun.clone();
        async move {
            assert!(!lease.is_stopping());
            begun.send(()).unwrap();
            lease.stopping().await;
            assert!(lease.is_stopping());
            Err(Stopped::suspend(Duration::ZERO))
        }
    };
    let options = WorkerOptions::default().with_concurrency(2);
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), work);
    let worker = worker.with_options(options).build().unwrap();
    for round in 0..3 {
        for key in ["a", "b", "c", "d"] {
            onceward.enqueue(ask(key)).await.unwrap();
        }
        let stop = async {
            for _ in 0..2 {
                begins.recv().await;
            }
            tokio::time::sleep(secs(1)).await;
        };
        let stopped = tokio::time::timeout(secs(30), worker.run_until(stop)).await;
        assert!(stopped.is_ok(), "round {round}: the worker did not stop");
        for key in ["a", "b", "c", "d"] {
            let found = onceward.receipt(&id(key)).await.unwrap().unwrap();
            assert_eq!(found.status.state(), State::Waiting, "{key}");
            assert_eq!(found.status.job().unwrap().started, 0, "{key}, round {round}");
        }
    }
    assert_eq!(worker.counts().suspended, 6);
}

/// A worker that is dropped again and again uses up no tries.
#[tokio::test(start_paused = true)]
async fn a_dropped_worker_counts_no_try() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    onceward.enqueue(ask("k")).await.unwrap();
    for _ in 0..5 {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let work = move |_| {
            begun.send(()).unwrap();
            std::future::pending()
        };
        let worker =
            Worker::builder(onceward.clone()).with_operation("charge", policy(), work).build().unwrap();
        tokio::select! {
            () = worker.run_until(std::future::pending()) => unreachable!("nobody stops it"),
            _ = begins.recv() => {}
        }
        drop(worker);
        tokio::time::sleep(secs(1)).await;
        let found = onceward.receipt(&id("k")).await.unwrap().unwrap();
        assert_eq!((found.status.state(), found.status.job().unwrap().started), (State::Waiting, 0));
    }
    let work = async |lease: Lease| Ok(Outcome::succeeded(lease.tries().to_string()));
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), work).build().unwrap();
    assert_eq!(worker.run_once().await.unwrap().finished, 1);
    let found = onceward.receipt(&id("k")).await.unwrap().unwrap();
    assert_eq!(found.status.outcome(), Some(&Outcome::succeeded("1")));
}
