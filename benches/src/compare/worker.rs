//! Measures workers: tasks that are enqueued, claimed and completed. In PostgreSQL they are compared with a
//! hand-written queue on `FOR UPDATE SKIP LOCKED`; in the embedded store with claim + complete without a queue.
//!
//! Callers in a closed loop enqueue a small task and wait until its work has run. Four workers do the work, each with
//! connections of its own, as four processes would have. Both sides work on the same number of tasks at once, and each
//! side's workers run only in its own turns.

mod by_hand;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Ask, Enqueued, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Worker, WorkerOptions};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::{embedded, postgres};
use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// Tasks that are enqueued and not yet done, in PostgreSQL: four times as many as are worked on singly, and more than
/// twice as many as fill the batches.
const CALLERS: usize = 256;
const CALLERS_BATCHED: usize = 1_024;
/// Workers, and tasks that each of them works on at once: singly, and in batches.
const WORKERS: usize = 4;
const SINGLY: usize = 16;
const BATCHED: usize = 100;
const INPUT: &str = "{\"account\":\"acct_81\",\"amount\":1200}";
const ANSWER: &str = "{\"id\":81,\"status\":\"paid\"}";

/// Measures tasks per second.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = postgres::start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    server.sql("bench", by_hand::TABLES);
    let few = runtime.block_on(Queue::postgres(&url, SINGLY));
    let many = runtime.block_on(Queue::postgres(&url, BATCHED));
    let hands = runtime.block_on(by_hand::Queue::connect(&url));
    let turns = || Turns::new(scale.rounds, Unit::PerSecond).after_warm_up();
    let [worker_few, single, worker_many, batched] = turns().take([
        ("worker, 64 at once", &mut |_| runtime.block_on(few.rate(CALLERS, scale.round))),
        ("SKIP LOCKED, one per claim", &mut |_| runtime.block_on(hands.rate(1, CALLERS, scale.round))),
        ("worker, 400 at once", &mut |_| runtime.block_on(many.rate(CALLERS_BATCHED, scale.round))),
        ("SKIP LOCKED, 100 per claim", &mut |_| {
            runtime.block_on(hands.rate(BATCHED, CALLERS_BATCHED, scale.round))
        }),
    ]);

    let folder = tempfile::tempdir().unwrap();
    let onceward = runtime.block_on(embedded::engine(&folder.path().join("ours")));
    let queue = runtime.block_on(async {
        Queue::new(onceward.clone(), std::slice::from_ref(&onceward), embedded::CALLERS, "embedded")
    });
    let [tasks, claims] = turns().take([
        ("enqueue + claim + complete", &mut |_| runtime.block_on(queue.rate(embedded::CALLERS, scale.round))),
        ("claim + complete", &mut |round| {
            let claims =
                async { embedded::claims(&onceward, round as u64, tokio::time::sleep(scale.round)).await };
            runtime.block_on(claims)
        }),
    ]);
    let ratio =
        |what, ours, other, least| Row::ratio(what, Unit::PerSecond, ours, other).goal(Goal::AtLeast(least));
    let rows = vec![
        ratio(
            "tasks, PostgreSQL, 4 workers with 16 at once / SKIP LOCKED by hand, one per claim, 64 at once",
            &worker_few,
            &single,
            3.0,
        ),
        ratio(
            "tasks, PostgreSQL, 4 workers with 100 at once / SKIP LOCKED by hand, 4 workers, 100 per claim",
            &worker_many,
            &batched,
            1.5,
        ),
        ratio("tasks, embedded / claim + complete without a queue", &tasks, &claims, 0.6),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// Wakes the caller that waits for a task, by the task's key.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// An engine to enqueue with, and workers that do what was enqueued.
struct Queue {
    onceward: Onceward,
    /// Of this queue alone: others share the store.
    operation: String,
    policy: Arc<Policy>,
    waiting: Waiting,
    workers: Vec<Arc<Worker>>,
}

impl Queue {
    async fn postgres(url: &str, concurrency: usize) -> Self {
        let onceward = postgres::open(url).await;
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            workers.push(postgres::open(url).await);
        }
        Self::new(onceward, &workers, concurrency, &concurrency.to_string())
    }

    fn new(onceward: Onceward, workers: &[Onceward], concurrency: usize, name: &str) -> Self {
        let operation = format!("payout-{name}");
        let policy = Arc::new(Policy::queue());
        let waiting = Waiting::default();
        let workers = workers.iter().map(|engine| {
            let waiting = waiting.clone();
            let work = move |lease: Lease| {
                let waiting = waiting.clone();
                async move {
                    assert_eq!(lease.input().map(|input| &input[..]), Some(INPUT.as_bytes()));
                    tell(&waiting, lease.id().key());
                    Ok(Outcome::succeeded(ANSWER))
                }
            };
            let worker = Worker::builder(engine.clone())
                .with_operation(&operation, policy.clone(), work)
                .with_options(WorkerOptions::default().with_concurrency(concurrency))
                .build();
            Arc::new(worker.unwrap())
        });
        let workers = workers.collect();
        Self { onceward, operation, policy, waiting, workers }
    }

    async fn rate(&self, count: usize, length: Duration) -> Turn {
        let (onceward, policy, waiting) = (self.onceward.clone(), self.policy.clone(), self.waiting.clone());
        let operation = self.operation.clone();
        let call = move |_| {
            let (onceward, policy, waiting) = (onceward.clone(), policy.clone(), waiting.clone());
            let operation = operation.clone();
            async move {
                let key = key();
                let done = wait_for(&waiting, &key);
                let id = Id::new("tenant", &operation, &key).unwrap();
                let ask = Ask::new(id, Fingerprint::new(1, [7; 32]), policy).with_input(INPUT);
                assert_eq!(onceward.enqueue(ask).await.unwrap(), Enqueued::Accepted);
                done.await.unwrap();
            }
        };
        let (stop, mut working) = (watch::Sender::new(false), JoinSet::new());
        for worker in self.workers.clone() {
            let mut stopped = stop.subscribe();
            working.spawn(async move {
                worker.run_until(async { drop(stopped.wait_for(|stop| *stop).await) }).await;
            });
        }
        let turn = callers(count, tokio::time::sleep(length), call).await;
        stop.send_replace(true);
        working.join_all().await;
        turn
    }
}

fn wait_for(waiting: &Waiting, key: &str) -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    waiting.lock().unwrap().insert(key.to_owned(), tell);
    told
}

/// The work of a task runs: that is what its caller waits for.
fn tell(waiting: &Waiting, key: &str) {
    if let Some(tell) = waiting.lock().unwrap().remove(key) {
        let _ = tell.send(());
    }
}

/// A fresh key, spread over the index as keys of clients are.
fn key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("payout-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
