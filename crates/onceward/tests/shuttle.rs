//! The engine's own concurrency under shuttle: thousands of schedules around every lock and await.
//!
//! Built and run only with `--cfg shuttle`, see `./check`; without it this file is empty.

#![cfg(shuttle)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use onceward::{
    Answer, Ask, Caps, Choose, Error, ErrorKind, Fingerprint, Id, Limits, Loaded, OnUnknown, Onceward,
    Outcome, Page, Policy, Refusal, Runtime, Scan, State, Store, StoreFuture, Swap, Swapped, Task, Watch,
    take_by_scan,
};
use onceward_stores::MemoryStore;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::Rng;

const SCHEDULES: usize = 3_000;
/// A poll of the engine in a debug build needs more than the 32 KiB that shuttle gives to a task.
const STACK_BYTES: usize = 256 * 1024;

/// Runs a test under random schedules.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(SCHEDULES), config).run(test);
}

/// Time passes only as fast as somebody sleeps; tasks are shuttle's.
struct ShuttleRuntime {
    process: u64,
    now_us: AtomicU64,
    next: AtomicU64,
}

impl Runtime for ShuttleRuntime {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us.load(Ordering::SeqCst))
    }

    /// A short pause (of the poller, or before another try) takes a few turns of the others. A long
    /// one (a lease, somebody's patience) does not end within a test.
    fn sleep(&self, duration: Duration) -> Task {
        if duration >= Duration::from_secs(1) {
            return Box::pin(std::future::pending());
        }
        self.now_us.fetch_add(100, Ordering::SeqCst);
        Box::pin(async {
            for _ in 0..3 {
                yield_now().await;
            }
        })
    }

    fn spawn(&self, task: Task) {
        drop(spawn(task));
    }

    fn random(&self) -> u128 {
        u128::from(self.process) << 64 | u128::from(self.next.fetch_add(1, Ordering::SeqCst))
    }
}

/// A store whose every call takes a turn before and after.
struct TurnStore {
    inner: MemoryStore,
    batches_in_flight: usize,
    failures: AtomicUsize,
}

impl TurnStore {
    fn new(batches_in_flight: usize) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), batches_in_flight, failures: AtomicUsize::new(0) })
    }
}

impl Store for TurnStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        assert!(batch.is_sorted_by(|a, b| a.id < b.id), "sorted, and no id twice");
        Box::pin(async move {
            yield_now().await;
            if self
                .failures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
            {
                return Err(Error::new(ErrorKind::Unavailable, "scripted"));
            }
            let answers = self.inner.swap(batch).await;
            yield_now().await;
            answers
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            yield_now().await;
            self.inner.load(ids).await
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        caps.with_hints(caps.hints.with_batches_in_flight(self.batches_in_flight))
    }
}

fn engine(store: &Arc<TurnStore>) -> Onceward {
    process(store, 1)
}

fn process(store: &Arc<TurnStore>, process: u64) -> Onceward {
    let limits = Limits::default().with_batch_swaps_max(2).with_cache_bytes_max(10_000);
    let builder = Onceward::builder(store.clone()).accept_volatile().with_limits(limits);
    let runtime = ShuttleRuntime { process, now_us: AtomicU64::new(0), next: AtomicU64::new(0) };
    builder.with_runtime(Arc::new(runtime)).build().unwrap()
}

fn ask(key: &str, on_unknown: OnUnknown) -> Ask {
    let policy = Policy::http()
        .to_builder()
        .with_lease(Duration::from_hours(24))
        .with_on_unknown(on_unknown)
        .build()
        .unwrap();
    Ask::new(Id::new("s", "o", key).unwrap(), Fingerprint::of(b""), Arc::new(policy))
}

/// Runs `key` with work that takes a turn and counts itself.
async fn run(onceward: Onceward, ask: Ask, effects: Arc<AtomicUsize>) -> onceward::Result<Answer> {
    let work = async move |_| {
        yield_now().await;
        let number = effects.fetch_add(1, Ordering::SeqCst);
        Ok(Outcome::succeeded(number.to_string()))
    };
    onceward.run(ask, work).await
}

/// Four copies of one intent, spread over these processes, run once and get the same outcome.
fn all_agree(processes: &[Onceward]) {
    let effects = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|at| {
            let process = processes[at % processes.len()].clone();
            spawn(run(process, ask("k", OnUnknown::Hold), effects.clone()))
        })
        .collect();
    for task in tasks {
        let completed = block_on(task).unwrap().unwrap().into_result().unwrap();
        assert_eq!(completed.outcome, Outcome::succeeded("0"));
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[test]
fn copies_of_one_intent_run_once_and_agree() {
    check(|| all_agree(&[engine(&TurnStore::new(1))]));
}

#[test]
fn two_processes_on_one_store_run_once_and_agree() {
    let processes = || {
        let store = TurnStore::new(1);
        all_agree(&[process(&store, 1), process(&store, 2)]);
    };
    check(processes);
}

#[test]
fn many_intents_share_batches_and_each_runs_once() {
    for batches_in_flight in [1, 2] {
        check(move || {
            let onceward = engine(&TurnStore::new(batches_in_flight));
            let effects = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..6)
                .map(|at| {
                    let key = format!("k{}", at % 5);
                    spawn(run(onceward.clone(), ask(&key, OnUnknown::Hold), effects.clone()))
                })
                .collect();
            for task in tasks {
                block_on(task).unwrap().unwrap().into_result().unwrap();
            }
            assert_eq!(effects.load(Ordering::SeqCst), 5);
        });
    }
}

/// One caller is dropped at any of its awaits; the others must neither hang nor run it a second time
/// where that is not allowed.
#[test]
fn a_caller_dropped_at_any_await_blocks_nobody() {
    for on_unknown in [OnUnknown::Hold, OnUnknown::Retry] {
        check(move || {
            let onceward = engine(&TurnStore::new(1));
            let effects = Arc::new(AtomicUsize::new(0));
            let polls = shuttle::rand::thread_rng().gen_range(0..12);
            let doomed = Box::pin(run(onceward.clone(), ask("k", on_unknown), effects.clone()));
            let doomed = spawn(give_up_after(doomed, polls));
            let others: Vec<_> =
                (0..2).map(|_| spawn(run(onceward.clone(), ask("k", on_unknown), effects.clone()))).collect();
            let answers: Vec<_> = others.into_iter().map(|task| block_on(task).unwrap().unwrap()).collect();
            block_on(doomed).unwrap();
            match on_unknown {
                OnUnknown::Hold => {
                    assert!(effects.load(Ordering::SeqCst) <= 1, "held work ran twice");
                    for answer in &answers {
                        assert!(
                            matches!(answer, Answer::Completed(_) | Answer::Refused(Refusal::OutcomeUnknown)),
                            "{answer:?}"
                        );
                    }
                }
                OnUnknown::Retry => {
                    let outcomes: Vec<_> =
                        answers.into_iter().map(|a| a.into_result().unwrap().outcome).collect();
                    assert_eq!(outcomes[0], outcomes[1]);
                }
                other => panic!("this test does not know the rule {other:?}"),
            }
        });
    }
}

#[test]
fn a_failing_store_hangs_nobody() {
    check(|| {
        let store = TurnStore::new(1);
        store.failures.store(shuttle::rand::thread_rng().gen_range(1..4), Ordering::SeqCst);
        let onceward = engine(&store);
        let effects = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| spawn(run(onceward.clone(), ask("k", OnUnknown::Hold), effects.clone())))
            .collect();
        for task in tasks {
            // Either answer is fine here; what counts is that there is one.
            let _ = block_on(task).unwrap();
        }
        assert!(effects.load(Ordering::SeqCst) <= 1);
    });
}

/// Polls `future` this often, then drops it.
async fn give_up_after<F: Future>(mut future: Pin<Box<F>>, polls: usize) {
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 || future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        // Polled again without a reason: a future must bear that.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
