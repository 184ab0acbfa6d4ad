//! One simulated store for all processes, with a clock of its own and faults by seed.
//!
//! As a *server* it is outside: what a process has sent goes on happening when the process is paused or
//! dead. *Embedded* it lives and dies with its only process, and comes back with what was synced.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Caps, Error, ErrorKind, Found, Fut, Id, Page, Result, Scan, Store, Swap, Swapped, codec};

use super::executor::{Executor, OUTSIDE, Process, lock};
use super::faults::{Fault, Weather};
use super::history::{Recorder, What};
use crate::reference::Book;

/// The store's clock when the world begins: far from that of any process.
const START_US: u64 = 1_700_000_000_000_000;

/// How many times as long a slow call takes.
const SLOW: u32 = 100;

/// What is long beside the shortest lease there is: the judge has to know of such trips.
const LONG_TRIP: Duration = onceward::LEASE_MIN.checked_div(4).expect("four is not zero");

/// Where the store lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In a server of its own, shared by all processes.
    Server,
    /// In the only process. Answers are given once they are synced.
    Embedded,
    /// In the only process, by somebody who forgot to sync. For the judge to catch.
    EmbeddedUnsynced,
}

/// How a simulated store behaves.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Where it lives.
    pub home: Home,
    /// How often something goes wrong.
    pub weather: Weather,
    /// The longest way to the store and back, each.
    pub way_us_max: u64,
    /// How many of a thousand calls are answered on the spot.
    pub instant_per_thousand: u32,
    /// Longer than leases last.
    pub long: Duration,
}

impl Habits {
    /// The longest that a call can take, there and back.
    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.way_us_max) * 2 * SLOW
    }
}

/// The store itself; processes have [`Handle`]s.
pub struct SimStore {
    executor: Arc<Executor>,
    recorder: Arc<Recorder>,
    habits: Habits,
    calm: AtomicBool,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    now: Book,
    synced: Book,
}

/// How one call will go.
struct Trip {
    there: Duration,
    back: Duration,
    fault: Option<Fault>,
}

impl SimStore {
    /// An empty store.
    pub fn new(executor: &Arc<Executor>, recorder: &Arc<Recorder>, habits: Habits) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(executor),
            recorder: Arc::clone(recorder),
            habits,
            calm: AtomicBool::new(false),
            books: Mutex::default(),
        })
    }

    /// From here on nothing goes wrong any more.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// The way of one process to this store.
    pub fn handle(self: &Arc<Self>, process: Process) -> Arc<dyn Store> {
        Arc::new(Handle { store: Arc::clone(self), process })
    }

    /// The only process has died: what was not synced is lost. Whoever opens the store next is alone with
    /// it, so all leases are over.
    pub fn reopen(&self, process: Process) {
        let mut books = lock(&self.books);
        let now_us = self.now_us();
        books.now = books.synced.clone();
        books.now.end_leases(now_us);
        let kept = books.now.all(now_us);
        let kept = kept.filter_map(|(id, found)| Some((id.clone(), Box::new(codec::decode(&found).ok()?))));
        let kept = kept.collect();
        drop(books);
        self.recorder.record(process, What::Reopened { kept });
    }

    fn now_us(&self) -> u64 {
        START_US + self.executor.now_us()
    }

    fn trip(&self, fault: impl FnOnce(Weather, &mut super::random::Random) -> Option<Fault>) -> Trip {
        let weather = if self.calm.load(Ordering::Relaxed) { Weather::Calm } else { self.habits.weather };
        self.executor.draw(|random| {
            let instant = random.chance(self.habits.instant_per_thousand);
            let way_us_max = if instant { 0 } else { self.habits.way_us_max };
            let mut way = || random.micros(0, way_us_max);
            let (there, back) = (way(), way());
            let fault = fault(weather, random);
            if fault == Some(Fault::Slow) {
                return Trip { there: there * SLOW, back: back * SLOW, fault };
            }
            Trip { there, back, fault }
        })
    }

    /// Writes a part of a batch, now.
    fn apply(&self, process: Process, batch: &[Swap]) -> Vec<Swapped> {
        let mut books = lock(&self.books);
        let now_us = self.now_us();
        let mut answers = Vec::with_capacity(batch.len());
        for swap in batch {
            let before = books.now.load(now_us, &swap.id);
            let answer = books.now.swap(now_us, swap);
            if let Swapped::Won(version) = answer {
                let after = books.now.load(now_us, &swap.id);
                self.recorder.record(process, wrote(&swap.id, version.0, before, after));
            }
            answers.push(answer);
        }
        answers
    }

    /// What was seen is safe before it is told.
    fn sync(&self, process: Process, batch: &[Swap], answers: &[Swapped]) {
        if self.habits.home == Home::Server {
            return;
        }
        let mut books = lock(&self.books);
        if self.habits.home == Home::Embedded {
            books.synced = books.now.clone();
        }
        for (swap, answer) in batch.iter().zip(answers) {
            if let Swapped::Won(version) = answer {
                let what = What::Acknowledged { id: swap.id.clone(), version: version.0 };
                self.recorder.record(process, what);
            }
        }
    }

    /// Whose tasks carry on what was sent.
    fn carrier(&self, process: Process) -> Process {
        if self.habits.home == Home::Server { OUTSIDE } else { process }
    }
}

fn wrote(id: &Id, version: u64, before: Option<Found>, after: Option<Found>) -> What {
    let read = |found: Option<Found>| found.map(|found| codec::decode(&found).map(Box::new)).transpose();
    match (read(before), read(after)) {
        (Ok(before), Ok(after)) => What::Wrote { id: id.clone(), version, before, after },
        _ => What::Unreadable { id: id.clone() },
    }
}

/// One process's way to the store. Dead with its process: whatever is called on it then is never sent.
struct Handle {
    store: Arc<SimStore>,
    process: Process,
}

impl Handle {
    /// Carries a call to the store and its answer back, beside whatever the caller does.
    async fn carry<T, W, F>(&self, way: W) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(Arc<SimStore>, tokio::sync::oneshot::Sender<Result<T>>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (tell, told) = tokio::sync::oneshot::channel();
        let carrier = self.store.carrier(self.process);
        self.store.executor.spawn(carrier, way(Arc::clone(&self.store), tell));
        match told.await {
            Ok(answer) => answer,
            // Only when the carrier has died, and the caller with it.
            Err(_) => std::future::pending().await,
        }
    }

    async fn send(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        if !self.store.executor.is_alive(self.process) {
            return std::future::pending().await;
        }
        let trip = self.store.trip(Weather::for_write);
        if let Some(fault) = trip.fault {
            self.store.recorder.record(self.process, What::Fault(fault));
        } else if trip.there + trip.back > LONG_TRIP {
            self.store.recorder.record(self.process, What::LongTrip(trip.there + trip.back));
        }
        if trip.there.is_zero() && trip.back.is_zero() && trip.fault.is_none() {
            let answers = self.store.apply(self.process, batch);
            self.store.sync(self.process, batch, &answers);
            return Ok(answers);
        }
        let (batch, process) = (batch.to_vec(), self.process);
        self.carry(move |store, tell| carry_batch(store, process, batch, trip, tell)).await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Book, u64) -> T + Send + 'static,
    ) -> Result<T> {
        if !self.store.executor.is_alive(self.process) {
            return std::future::pending().await;
        }
        let trip = self.store.trip(Weather::for_read);
        if let Some(fault) = trip.fault {
            self.store.recorder.record(self.process, What::Fault(fault));
        }
        if trip.there.is_zero() && trip.back.is_zero() && trip.fault.is_none() {
            let found = look(&lock(&self.store.books).now, self.store.now_us());
            self.store.sync(self.process, &[], &[]);
            return Ok(found);
        }
        let process = self.process;
        self.carry(move |store, tell| async move {
            let carrier = store.carrier(process);
            let long = store.habits.long;
            store.executor.sleep(carrier, trip.there).await;
            if trip.fault == Some(Fault::ReadFailure) {
                let _ = tell.send(Err(Error::new(ErrorKind::Unavailable, "simulated: the read failed")));
                return;
            }
            let found = look(&lock(&store.books).now, store.now_us());
            let late = if trip.fault == Some(Fault::ReplyLate) { long } else { Duration::ZERO };
            store.executor.sleep(carrier, trip.back + late).await;
            store.sync(process, &[], &[]);
            let _ = tell.send(Ok(found));
        })
        .await
    }
}

type Tell = tokio::sync::oneshot::Sender<Result<Vec<Swapped>>>;

/// The whole story of one batch. A receiver that is gone is one who does not care.
async fn carry_batch(store: Arc<SimStore>, process: Process, batch: Vec<Swap>, trip: Trip, tell: Tell) {
    let carrier = store.carrier(process);
    let pause = |duration| store.executor.sleep(carrier, duration);
    let maybe = || Error::new(ErrorKind::Unavailable, "simulated: no answer").maybe_applied();
    pause(trip.there).await;
    let answers = match trip.fault {
        Some(Fault::CleanFailure) => {
            let _ = tell.send(Err(Error::new(ErrorKind::Unavailable, "simulated: connection refused")));
            return;
        }
        Some(Fault::WriteLost) => {
            pause(trip.back).await;
            let _ = tell.send(Err(maybe()));
            return;
        }
        Some(Fault::WriteLate) => {
            let _ = tell.send(Err(maybe()));
            pause(store.executor.draw(|random| store.habits.long / random.pick(&[16, 4, 2, 1]))).await;
            store.apply(process, &batch);
            return;
        }
        Some(Fault::Halves | Fault::HalfLost) => {
            let (first, second) = batch.split_at(batch.len() / 2);
            let mut late = store.apply(process, second);
            pause(trip.back).await;
            if trip.fault == Some(Fault::HalfLost) {
                let _ = tell.send(Err(maybe()));
                return;
            }
            let mut answers = store.apply(process, first);
            answers.append(&mut late);
            answers
        }
        _ => store.apply(process, &batch),
    };
    if trip.fault == Some(Fault::ReplyLate) {
        pause(store.habits.long).await;
    }
    pause(trip.back).await;
    store.sync(process, &batch, &answers);
    let _ = tell.send(if trip.fault == Some(Fault::ReplyLost) { Err(maybe()) } else { Ok(answers) });
}

impl Store for Handle {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        assert!(
            batch.windows(2).all(|pair| pair[0].id < pair[1].id),
            "a batch is sorted and names no id twice"
        );
        Box::pin(self.send(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        let ids = ids.to_vec();
        Box::pin(self.read(move |book, now_us| ids.iter().map(|id| book.load(now_us, id)).collect()))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        let query = query.clone();
        Box::pin(self.read(move |book, now_us| book.scan(now_us, &query)))
    }

    fn caps(&self) -> Caps {
        Caps {
            name: "simulated",
            durable: true,
            atomic: true,
            shared: self.store.habits.home == Home::Server,
            transactions: false,
            batches_in_flight: 2,
            // As the embedded store does, and no server. What is carried arrives, whoever still waits.
            gathers: self.store.habits.home != Home::Server,
        }
    }
}
