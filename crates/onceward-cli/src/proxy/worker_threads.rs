//! Worker threads for connections: runtimes of one thread each, as many as the setting `threads` says. A connection stays
//! on the thread that it was given to, together with the connections to the upstream that its requests use: no request
//! wakes another thread, and no work is stolen.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

static COUNT: OnceLock<usize> = OnceLock::new();

/// More threads than this per process are refused: each has connections of its own to the upstream.
pub const COUNT_MAX: usize = 256;

/// tokio wakes a runtime by a system call for every timer that is set while it has no earlier one. With this timer there
/// always is an earlier one: those of requests are longer.
const TIMER_INTERVAL: Duration = Duration::from_millis(500);

/// The number of threads; 0 stands for every other thread of the process. Fixed at the first call, even if the number
/// of cores changes.
pub fn count() -> usize {
    *COUNT.get_or_init(default_count)
}

/// Sets the number of threads. Before the first use of [`count`].
pub fn set_count(count: usize) -> Result<(), String> {
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(format!("threads: {count} is not between 1 and {COUNT_MAX}"));
    }
    COUNT.set(count).map_err(|_| "threads: set twice".to_owned())
}

fn default_count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The number of the thread that this is called on.
pub fn current() -> usize {
    CURRENT.get()
}

/// All threads. Dropping it drops what still runs on them.
pub struct WorkerThreads(Vec<WorkerThread>);

struct WorkerThread {
    runtime: Option<Runtime>,
    /// The number of tasks on this thread.
    load: Arc<AtomicUsize>,
}

impl WorkerThreads {
    pub fn open() -> io::Result<Self> {
        (1..=count()).map(WorkerThread::open).collect::<io::Result<_>>().map(Self)
    }

    /// Starts a task on the thread with the fewest tasks.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let thread =
            self.0.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed)).expect("there is one");
        let task = TaskCount::of(&thread.load);
        let runtime = thread.runtime.as_ref().expect("it is taken only when the thread ends");
        runtime.spawn(async move {
            work.await;
            drop(task);
        });
    }
}

impl WorkerThread {
    fn open(number: usize) -> io::Result<Self> {
        // Not the runtime for a single thread: that one makes a system call for every wake-up from outside,
        // and the receipts of a whole group come from outside at once.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(format!("onceward-io-{number}"))
            .on_thread_start(move || CURRENT.set(number))
            .enable_all()
            .build()?;
        runtime.spawn(async {
            loop {
                tokio::time::sleep(TIMER_INTERVAL).await;
            }
        });
        Ok(Self { runtime: Some(runtime), load: Arc::default() })
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Counts one task in the load of a thread until dropped.
struct TaskCount(Arc<AtomicUsize>);

impl TaskCount {
    fn of(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load.clone())
    }
}

impl Drop for TaskCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "worker_threads_test.rs"]
mod tests;
