//! The test fixture: one store, several processes over it, scripted faults, paused time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Ask, Caps, Choose, Clock, Error, ErrorKind, Fingerprint, Id, Loaded, Onceward, Outcome, Page, Policy,
    Scan, Seen, State, Store, StoreFuture, Swap, Swapped, Watch, take_by_scan,
};
use onceward_stores::MemoryStore;
use onceward_stores::memory::MemoryTransactions;
use tokio::sync::watch;
use tokio::time::Instant;

/// Follows tokio's clock, which the tests pause, so that leases and sleeps run on one time.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        1_700_000_000_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

/// One store for all processes of a test.
pub struct Cluster {
    pub store: Arc<FaultyStore>,
    clock: Arc<TokioClock>,
}

/// What happens to one swap call.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It is applied, but the answer is lost.
    LoseReply,
    /// It is not applied, and nobody can tell.
    LoseWrite,
    /// It is not applied, and that is said.
    Refuse,
}

impl Cluster {
    pub fn new() -> Self {
        let clock = Arc::new(TokioClock(Instant::now()));
        let (gate, _) = watch::channel(true);
        Self {
            clock: clock.clone(),
            store: Arc::new(FaultyStore {
                inner: Arc::new(MemoryStore::new_with_clock(clock)),
                faults: Mutex::default(),
                load_faults: Mutex::default(),
                gate,
                batches: Mutex::default(),
                scanned: AtomicUsize::new(0),
            }),
        }
    }

    /// A process over the store, with caches of its own.
    pub fn process(&self) -> Onceward {
        self.killable_process().0
    }

    /// The store's clock.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// A process that can be killed: from then on nothing it does reaches the store.
    pub fn killable_process(&self) -> (Onceward, Kill) {
        let (store, kill) = self.killable_store();
        (Onceward::builder(store).accept_volatile().build().unwrap(), kill)
    }

    /// The store as a process has it that can be killed.
    pub fn killable_store(&self) -> (Arc<dyn Store>, Kill) {
        let alive = Arc::new(AtomicBool::new(true));
        (Arc::new(KillableStore { inner: self.store.clone(), alive: alive.clone() }), Kill(alive))
    }
}

pub struct Kill(Arc<AtomicBool>);

impl Kill {
    pub fn now(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

pub struct FaultyStore {
    inner: Arc<MemoryStore>,
    faults: Mutex<VecDeque<Fault>>,
    load_faults: Mutex<usize>,
    gate: watch::Sender<bool>,
    batches: Mutex<Vec<usize>>,
    scanned: AtomicUsize,
}

impl FaultyStore {
    /// Records that scans have read so far.
    pub fn scanned(&self) -> usize {
        self.scanned.load(Ordering::SeqCst)
    }

    /// The next swap calls meet these faults, one each.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// The next `count` loads fail.
    pub fn fail_loads(&self, count: usize) {
        *self.load_faults.lock().unwrap() = count;
    }

    /// Forgets what is scripted.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
        *self.load_faults.lock().unwrap() = 0;
    }

    /// Swaps that arrive from now on wait.
    pub fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    /// Lets them go on.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Another way to the same records, which neither the gate nor the faults are in.
    pub fn behind_the_gate(&self) -> Arc<dyn Store> {
        self.inner.clone()
    }

    /// Transactions over the same records, which neither the gate nor the faults are in.
    pub fn transactions(&self) -> MemoryTransactions {
        MemoryTransactions::new(&self.inner)
    }

    /// Sizes of the batches so far.
    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

impl Store for FaultyStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        self.batches.lock().unwrap().push(batch.len());
        assert!(batch.is_sorted_by(|a, b| a.id < b.id), "a batch must be sorted and name no id twice");
        assert!(batch.iter().all(|swap| !matches!((swap.seen, &swap.new), (Seen::Absent, None))));
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::Pass);
        Box::pin(async move {
            let mut gate = self.gate.subscribe();
            gate.wait_for(|open| *open).await.unwrap();
            let lost = || Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied();
            match fault {
                Fault::Pass => self.inner.swap(batch).await,
                Fault::LoseReply => {
                    self.inner.swap(batch).await?;
                    Err(lost())
                }
                Fault::LoseWrite => Err(lost()),
                Fault::Refuse => Err(Error::new(ErrorKind::Unavailable, "the store is down")),
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let mut faults = self.load_faults.lock().unwrap();
        if *faults > 0 {
            *faults -= 1;
            return Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the store is down")) });
        }
        self.inner.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let page = self.inner.scan(query).await?;
            self.scanned.fetch_add(page.found.len(), Ordering::SeqCst);
            Ok(page)
        })
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

    /// Shared: by the processes of a test.
    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        let promises = caps.promises.with_shared(true);
        Caps::new(caps.name, promises).with_hints(caps.hints)
    }
}

struct KillableStore {
    inner: Arc<FaultyStore>,
    alive: Arc<AtomicBool>,
}

impl KillableStore {
    /// A dead process gets no answers, and its requests reach nobody.
    fn guard<'a, T: Send + 'a>(&'a self, call: impl FnOnce() -> StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.alive.load(Ordering::SeqCst) { call() } else { Box::pin(std::future::pending()) }
    }
}

impl Store for KillableStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        self.guard(|| self.inner.swap(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.guard(|| self.inner.load(ids))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.guard(|| self.inner.scan(query))
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
        self.inner.caps()
    }
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub fn id(key: &str) -> Id {
    Id::new("tenant", "charge", key).unwrap()
}

/// An ask for `key` whose body is always the same.
pub fn ask(key: &str, policy: &Policy) -> Ask {
    ask_for(key, "the usual", policy)
}

/// An ask for `key` with this body.
pub fn ask_for(key: &str, body: &str, policy: &Policy) -> Ask {
    Ask::new(id(key), Fingerprint::of(body.as_bytes()), Arc::new(policy.clone()))
}

/// Work that succeeds at once.
pub async fn paid(_: onceward::Lease) -> Result<Outcome, onceward::Stopped> {
    Ok(Outcome::succeeded("paid"))
}

/// Work that must not be reached.
pub async fn never(_: onceward::Lease) -> Result<Outcome, onceward::Stopped> {
    panic!("this must not run")
}

/// Lets every task that can go on do so, without moving time.
pub async fn run_ready_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
