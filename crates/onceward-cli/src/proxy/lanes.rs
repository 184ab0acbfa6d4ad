//! A runtime of one thread per core. A connection stays on the lane it was given to, together with the
//! connections to the upstream that its requests use: nothing on its way wakes another thread, and nobody
//! steals its work.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// How many lanes there are, besides lane 0, which is everywhere else. It stays what it was at first, also if the
/// process is given more cores or fewer.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// The lane this is called on.
pub fn current() -> usize {
    LANE.get()
}

/// All lanes. When they are dropped, so is what still runs on them.
pub struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Option<Runtime>,
    /// Pieces of work on this lane.
    load: Arc<AtomicUsize>,
}

impl Lanes {
    pub fn open() -> io::Result<Self> {
        (1..=count()).map(Lane::open).collect::<io::Result<_>>().map(Self)
    }

    /// Starts work on the lane that has the least of it.
    pub fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let lane = self.0.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed)).expect("there is one");
        let share = Share::of(&lane.load);
        let runtime = lane.runtime.as_ref().expect("it is taken only when the lane ends");
        runtime.spawn(async move {
            work.await;
            drop(share);
        });
    }
}

impl Lane {
    fn open(number: usize) -> io::Result<Self> {
        // Not the runtime for a single thread: that one makes a system call for every wake-up from outside,
        // and the receipts of a whole group come from outside at once.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(format!("onceward-lane-{number}"))
            .on_thread_start(move || LANE.set(number))
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime), load: Arc::default() })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One piece of a lane's load.
struct Share(Arc<AtomicUsize>);

impl Share {
    fn of(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load.clone())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
