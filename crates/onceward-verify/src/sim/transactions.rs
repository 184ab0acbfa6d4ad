//! Transactions of the simulated server: their writes are visible only after they commit. A business write is
//! recorded as the call that made it, so that the checker can count them.
//!
//! What was sent continues happening when its process is dead: a commit under way commits.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::receipt::{Done, End, Status};
use onceward::{
    Age, Due, Error, ErrorKind, Fault as Failure, Found, Id, Join, Record, Result, Seen, State, StoreFuture,
    Swap, Swapped, Transactions, Version, codec,
};

use super::commit::{Commit, LastWrite};
use super::executor::{OUTSIDE, Process, lock};
use super::faults::{Fault, FaultRate};
use super::history::{Call, EventKind, Tx};
use super::store::{Isolation, SimStore, StoreState};
use crate::broken::transactions::TransactionFlaw;

/// Between two looks at a record that another transaction has, at first and at most.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(64);
/// After this long two transactions that wait for each other are seen, and one of them is undone.
pub(super) const DEADLOCK: Duration = Duration::from_millis(30);
/// How long it takes the server to see that the client of a transaction has gone.
const GONE_US_MAX: u64 = 3_000;

/// Where the transactions of one process come from.
#[derive(Clone)]
pub struct SimTransactions {
    pub(super) store: Arc<SimStore>,
    pub(super) process: Process,
    pub(super) flaw: TransactionFlaw,
}

impl SimTransactions {
    /// The transactions of this process.
    pub fn new(store: &Arc<SimStore>, process: Process, flaw: TransactionFlaw) -> Self {
        Self { store: Arc::clone(store), process, flaw }
    }

    fn open(&self) -> SimTx {
        let number = self.store.recorder.next_transaction();
        let staged = Mutex::new(Some(Staged::default()));
        SimTx(Arc::new(Open { number, home: self.clone(), staged }))
    }

    /// The way to the server, where a transaction is to begin. Gives the way back.
    async fn way_to_begin(&self) -> Result<Duration, Failure> {
        if !self.store.executor.is_alive(self.process) {
            return pending().await;
        }
        let away = |_: &mut crate::random::Random| Some(Fault::CleanFailure);
        let trip = self.store.plan_round_trip(self.process, (FaultRate::for_begin, away));
        self.store.executor.sleep(self.process, trip.there).await;
        match trip.fault {
            Some(Fault::CleanFailure) => Err(Failure::Failed(refused())),
            Some(Fault::Undone) => Err(Failure::Undone(deadlock())),
            _ => Ok(trip.back),
        }
    }

    async fn send_commit(&self, tx: &SimTx, last: LastWrite) -> Result<(), Failure> {
        if !self.store.executor.is_alive(self.process) {
            return pending().await;
        }
        let Some(staged) = tx.take() else { return Err(Failure::Failed(lost_to_others())) };
        let trip =
            self.store.plan_round_trip(self.process, (FaultRate::for_commit, FaultRate::for_write_away));
        let (tell, told) = tokio::sync::oneshot::channel();
        let commit = Commit { home: self.clone(), number: tx.number(), staged, last };
        self.store.executor.spawn(OUTSIDE, commit.carry(trip, tell));
        match told.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }

    /// One swap inside a transaction, now; `None` if another transaction has the record.
    pub(super) fn stage(&self, number: Tx, staged: &mut Staged, swap: &Swap) -> Option<Swapped> {
        let mut state = lock(&self.store.state);
        let records =
            swap.seen == Seen::Absent && swap.new.as_ref().is_some_and(|new| new.state == State::Done);
        let forced = self.flaw == TransactionFlaw::CompletesWithoutVersion
            || records && self.flaw == TransactionFlaw::RecordsOverWhatIsThere;
        let locks = !forced && self.store.habits.isolation == Isolation::Locks;
        if locks && state.locks.get(&swap.id).is_some_and(|holder| *holder != number) {
            return None;
        }
        let now_us = self.store.now_us();
        let there = match staged.records.get(&swap.id) {
            Some(record) => record.new.as_ref().map(|new| found(new, record.version)),
            None => state.now.load(now_us, &swap.id),
        };
        let completes = swap.new.as_ref().is_some_and(|new| new.state == State::Done);
        if self.flaw == TransactionFlaw::ConflictIsNoLoss
            && completes
            && swap.seen == Seen::Absent
            && let Some(there) = &there
        {
            return Some(Swapped::Won(there.version));
        }
        let fits = match swap.seen {
            _ if forced && completes => true,
            Seen::Absent => there.is_none(),
            Seen::Version(version) => there.as_ref().is_some_and(|there| there.version == version),
        };
        if !fits {
            return Some(Swapped::Lost(there));
        }
        if locks {
            state.locks.insert(swap.id.clone(), number);
        }
        let version = next_version(&mut state, now_us);
        let first = state.now.last_version(&swap.id);
        let after = swap.new.as_ref().and_then(|new| codec::decode(&found(new, version)).ok()).map(Box::new);
        self.store
            .recorder
            .record(self.process, EventKind::Staged { tx: number, id: swap.id.clone(), after });
        let empty = StagedRecord { first, version, at_us: now_us, new: None };
        let record = staged.records.entry(swap.id.clone()).or_insert(empty);
        (record.version, record.at_us, record.new) = (version, now_us, swap.new.clone());
        Some(Swapped::Won(version))
    }
}

/// A transaction under way. When the last handle is dropped, it is undone.
#[derive(Clone)]
pub struct SimTx(Arc<Open>);

struct Open {
    number: Tx,
    home: SimTransactions,
    staged: Mutex<Option<Staged>>,
}

/// What a transaction has written.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) records: BTreeMap<Id, StagedRecord>,
    pub(super) business: Vec<Call>,
}

pub(super) struct StagedRecord {
    /// The last write of it before the transaction.
    pub(super) first: Option<Version>,
    /// What it has put there, when, and as what.
    pub(super) version: Version,
    pub(super) at_us: u64,
    pub(super) new: Option<Record>,
}

impl SimTx {
    /// Which one it is.
    pub fn number(&self) -> Tx {
        self.0.number
    }

    /// The business write of a call.
    pub fn charge(&self, call: Call) {
        let Open { number, home, .. } = &*self.0;
        home.store.recorder.record(home.process, EventKind::Charged { tx: *number, call });
        if let Some(staged) = &mut *lock(&self.0.staged) {
            staged.business.push(call);
        }
    }

    /// One swap; `None` if another transaction has the record for longer than this.
    async fn swap_within(&self, swap: &Swap, patience: Duration) -> Option<Swapped> {
        let (mut waited, mut look) = (Duration::ZERO, LOOK_MIN);
        loop {
            if let Some(swapped) = self.try_swap(swap) {
                return Some(swapped);
            }
            if waited >= patience {
                return None;
            }
            let Open { home, .. } = &*self.0;
            home.store.executor.sleep(home.process, look).await;
            waited += look;
            look = (look * 2).min(LOOK_MAX).min(patience.saturating_sub(waited).max(LOOK_MIN));
        }
    }

    /// One swap now; `None` if another transaction has the record.
    fn try_swap(&self, swap: &Swap) -> Option<Swapped> {
        let Open { number, home, staged } = &*self.0;
        match &mut *lock(staged) {
            Some(staged) => home.stage(*number, staged, swap),
            None => Some(over()),
        }
    }

    fn take(&self) -> Option<Staged> {
        lock(&self.0.staged).take()
    }
}

/// Whether a record is that of a closed intent.
fn closes(new: &Record) -> bool {
    let receipt = codec::decode(&found(new, Version(0)));
    receipt.is_ok_and(|receipt| matches!(receipt.status, Status::Done(Done { end: End::Closed(_), .. })))
}

fn over() -> Swapped {
    Swapped::Failed(Error::new(ErrorKind::Conflict, "simulated: this transaction is over"))
}

fn found(new: &Record, version: Version) -> Found {
    let due = new.due_in.map_or(Due::Never, Due::In);
    Found::new(version, new.state, due, Age::default(), new.bytes.clone())
}

/// A version above all that were given so far: that of a record which is not there for anybody to see.
fn next_version(state: &mut StoreState, now_us: u64) -> Version {
    let id = Id::new("sim", "version", "of-a-transaction").expect("a right id");
    let new = Record::new(State::Gone, bytes::Bytes::new());
    let put = Swap { id: id.clone(), seen: Seen::Absent, new: Some(new) };
    let Swapped::Won(version) = state.now.swap(now_us, &put) else {
        unreachable!("it is always removed again")
    };
    state.now.swap(now_us, &Swap { id, seen: Seen::Version(version), new: None });
    version
}

impl Join for SimTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        assert!(batch.is_sorted_by(|a, b| a.id < b.id), "a batch must be sorted and name no id twice");
        Box::pin(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for swap in batch {
                let enqueues = swap.new.as_ref().is_some_and(|new| new.state == State::Waiting);
                let at_once = match self.0.home.flaw {
                    TransactionFlaw::EnqueuesAtOnce => enqueues,
                    TransactionFlaw::ClosesAtOnce => swap.new.as_ref().is_some_and(closes),
                    _ => false,
                };
                if at_once {
                    let store = self.0.home.store.handle(self.0.home.process);
                    answers.append(&mut store.swap(std::slice::from_ref(swap)).await?);
                    continue;
                }
                answers.push(self.swap_within(swap, DEADLOCK).await.ok_or_else(deadlock)?);
            }
            Ok(answers)
        })
    }
}

/// Dropped without a word: the server finds out a moment later.
impl Drop for Open {
    fn drop(&mut self) {
        let Some(staged) = self.staged.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        else {
            return;
        };
        let (store, number) = (Arc::clone(&self.home.store), self.number);
        let executor = Arc::clone(&store.executor);
        executor.spawn(OUTSIDE, async move {
            let after = store.executor.draw(|random| random.micros(0, GONE_US_MAX));
            store.executor.sleep(OUTSIDE, after).await;
            roll_back(&store, number, &staged);
        });
    }
}

pub(super) fn roll_back(store: &SimStore, number: Tx, staged: &Staged) {
    unlock(&mut lock(&store.state), number, staged);
    store.recorder.record(OUTSIDE, EventKind::RolledBack { tx: number });
}

pub(super) fn unlock(state: &mut StoreState, number: Tx, staged: &Staged) {
    for id in staged.records.keys() {
        if state.locks.get(id) == Some(&number) {
            state.locks.remove(id);
        }
    }
}

pub(super) fn deadlock() -> Error {
    Error::new(ErrorKind::Overloaded, "simulated: undone in favour of another transaction")
}

pub(super) fn lost_to_others() -> Error {
    Error::new(ErrorKind::Conflict, "simulated: the completion did not win, nothing was committed")
}

pub(super) fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "simulated: connection refused")
}

impl Transactions for SimTransactions {
    type Tx = SimTx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        _: Option<Duration>,
        patience: Duration,
    ) -> Result<(SimTx, Swapped), Failure> {
        let back = self.way_to_begin().await?;
        let tx = self.open();
        let swapped = tx.swap_within(claim, patience).await.ok_or(Failure::Busy)?;
        self.store.executor.sleep(self.process, back).await;
        Ok((tx, swapped))
    }

    async fn begin_bare(&self, _: Duration) -> Result<SimTx, Failure> {
        let back = self.way_to_begin().await?;
        let tx = self.open();
        self.store.executor.sleep(self.process, back).await;
        Ok(tx)
    }

    async fn commit<'a>(&'a self, tx: SimTx, completion: &'a Swap) -> Result<(), Failure> {
        self.send_commit(&tx, LastWrite::Completion(completion.clone())).await
    }

    async fn commit_written<'a>(&'a self, tx: SimTx, id: &'a Id, written: Version) -> Result<(), Failure> {
        self.send_commit(&tx, LastWrite::Before(id.clone(), written)).await
    }

    async fn rollback(&self, tx: SimTx) {
        if let Some(staged) = tx.take() {
            roll_back(&self.store, tx.number(), &staged);
        }
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Overloaded)
    }
}
