//! One process's connection to the simulated store, with delays and faults.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Caps, Choose, Error, ErrorKind, Hints, Id, Loaded, Page, Promises, Result, Scan, State, Store,
    StoreFuture, Swap, Swapped, Watch, take_by_scan,
};

use super::executor::{Process, lock};
use super::faults::{Fault, FaultRate};
use super::history::EventKind;
use super::signals::SimSignals;
use super::store::{Home, LONG_TRIP, RoundTrip, SimStore};
use crate::reference::Book;

/// One process's connection to the store. After the process has died, calls are never sent.
pub(super) struct Handle {
    pub(super) store: Arc<SimStore>,
    pub(super) process: Process,
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
        let trip =
            self.store.plan_round_trip(self.process, (FaultRate::for_write, FaultRate::for_write_away));
        if trip.fault.is_none() && trip.there + trip.back > LONG_TRIP {
            self.store.recorder.record(self.process, EventKind::LongTrip(trip.there + trip.back));
        }
        let sent_us = self.store.executor.now_us();
        let at_once = trip.there.is_zero() && trip.back.is_zero() && trip.fault.is_none();
        if at_once && !self.store.is_locked(batch) {
            let mut answers = vec![None; batch.len()];
            self.store.apply(self.process, batch, sent_us, &mut answers);
            let answers: Vec<Swapped> = answers.into_iter().flatten().collect();
            self.store.sync(self.process, batch, &answers);
            return Ok(answers);
        }
        let sent = Sent { by: self.process, batch: batch.to_vec(), at_us: sent_us };
        self.carry(move |store, tell| carry_batch(store, sent, trip, tell)).await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Book, u64) -> T + Send + 'static,
    ) -> Result<T> {
        if !self.store.executor.is_alive(self.process) {
            return std::future::pending().await;
        }
        let trip = self.store.plan_round_trip(self.process, (FaultRate::for_read, FaultRate::for_read_away));
        if trip.there.is_zero() && trip.back.is_zero() && trip.fault.is_none() {
            let found = look(&lock(&self.store.state).now, self.store.now_us());
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
            let found = look(&lock(&store.state).now, store.now_us());
            let late = if trip.fault == Some(Fault::ReplyLate) { long } else { Duration::ZERO };
            store.executor.sleep(carrier, trip.back + late).await;
            store.sync(process, &[], &[]);
            let _ = tell.send(Ok(found));
        })
        .await
    }
}

type Tell = tokio::sync::oneshot::Sender<Result<Vec<Swapped>>>;

/// A batch on its way.
struct Sent {
    by: Process,
    batch: Vec<Swap>,
    at_us: u64,
}

/// Carries one batch to the store and its answers back. The receiver may be gone.
async fn carry_batch(store: Arc<SimStore>, sent: Sent, trip: RoundTrip, tell: Tell) {
    let Sent { by: process, batch, at_us: sent_us } = sent;
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
            store.write(process, &batch, sent_us).await;
            return;
        }
        Some(Fault::Halves | Fault::HalfLost) => {
            let (first, second) = batch.split_at(batch.len() / 2);
            let mut late = store.write(process, second, sent_us).await;
            pause(trip.back).await;
            if trip.fault == Some(Fault::HalfLost) {
                let _ = tell.send(Err(maybe()));
                return;
            }
            let mut answers = store.write(process, first, sent_us).await;
            answers.append(&mut late);
            answers
        }
        _ => store.write(process, &batch, sent_us).await,
    };
    if trip.fault == Some(Fault::ReplyLate) {
        pause(store.habits.long).await;
    }
    pause(trip.back).await;
    store.sync(process, &batch, &answers);
    let _ = tell.send(if trip.fault == Some(Fault::ReplyLost) { Err(maybe()) } else { Ok(answers) });
}

impl Store for Handle {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        assert!(
            batch.windows(2).all(|pair| pair[0].id < pair[1].id),
            "a batch is sorted and names no id twice"
        );
        Box::pin(self.send(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let ids = ids.to_vec();
        Box::pin(self.read(move |book, now_us| ids.iter().map(|id| Ok(book.load(now_us, id))).collect()))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        let query = query.clone();
        Box::pin(self.read(move |book, now_us| book.scan(now_us, &query)))
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    /// Speed is not what is simulated: nothing else may depend on it.
    fn watch(&self) -> Option<Watch> {
        let told = lock(&self.store.changes).len();
        let signals = SimSignals { store: Arc::clone(&self.store), process: self.process, told };
        self.store.habits.signals.then(|| Box::new(signals) as Watch)
    }

    fn caps(&self) -> Caps {
        let server = self.store.habits.home == Home::Server;
        let promises = Promises::default()
            .with_durable(true)
            .with_atomic(true)
            .with_shared(server)
            .with_transactions(server);
        // The embedded store makes batches itself, and no server does. What is carried arrives, also when its
        // caller has gone.
        Caps::new("simulated", promises)
            .with_hints(Hints::default().with_batches_in_flight(2).with_batches_internally(!server))
    }
}
