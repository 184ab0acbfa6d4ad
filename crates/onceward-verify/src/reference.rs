//! The simplest correct store: an ordered map behind one mutex. The simulated store and the broken stores build on
//! it.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Age, Caps, Choose, Clock, Cursor, Due, Found, Hints, Id, Loaded, Page, Promises, Record, Scan,
    ScanTarget, Seen, Signals, State, Store, StoreFuture, Swap, Swapped, SystemClock, Version, Watch,
    take_by_scan,
};
use tokio::sync::broadcast;

/// How many signals a slow listener may fall behind before it hears of the rest as one.
const SIGNALS_MAX: usize = 64;

/// Records as data, without a clock and without concurrency: its user says what time it is.
#[derive(Clone, Debug, Default)]
pub struct Book {
    cells: BTreeMap<Id, Cell>,
    /// The highest version ever given, to any id: so that no id needs to be remembered once it is gone.
    highest: u64,
    /// The versions of removals, for transactions that find out whether a record has come and gone.
    removed: BTreeMap<Id, Version>,
}

#[derive(Clone, Debug)]
struct Cell {
    version: Version,
    state: State,
    due_us: Option<u64>,
    ends_with_writer: bool,
    created_us: u64,
    updated_us: u64,
    bytes: Bytes,
}

impl Book {
    /// One conditional write at this time.
    pub fn swap(&mut self, now_us: u64, swap: &Swap) -> Swapped {
        let there = self.cells.get(&swap.id);
        let fits = match swap.seen {
            Seen::Absent => there.is_none(),
            Seen::Version(version) => there.is_some_and(|cell| cell.version == version),
        };
        if !fits {
            return Swapped::Lost(there.map(|cell| cell.found(now_us)));
        }
        let created_us = there.map_or(now_us, |cell| cell.created_us);
        self.highest = now_us.max(self.highest + 1);
        let version = Version(self.highest);
        self.write(&swap.id, swap.new.as_ref(), version, created_us, now_us);
        Swapped::Won(version)
    }

    /// Writes a record under a version that was given before, as a transaction commits what it wrote at this time.
    pub fn put(&mut self, at_us: u64, id: &Id, new: Option<&Record>, version: Version) {
        let created_us = self.cells.get(id).map_or(at_us, |cell| cell.created_us);
        self.write(id, new, version, created_us, at_us);
    }

    fn write(&mut self, id: &Id, new: Option<&Record>, version: Version, created_us: u64, now_us: u64) {
        match new {
            None => {
                self.cells.remove(id);
                self.removed.insert(id.clone(), version);
            }
            Some(new) => {
                self.cells.insert(id.clone(), Cell::written(new, version, created_us, now_us));
            }
        }
    }

    /// The version of the last write of an id, also of its removal.
    pub fn last_version(&self, id: &Id) -> Option<Version> {
        self.cells.get(id).map(|cell| cell.version).or_else(|| self.removed.get(id).copied())
    }

    /// What is there at this time.
    pub fn load(&self, now_us: u64, id: &Id) -> Option<Found> {
        self.cells.get(id).map(|cell| cell.found(now_us))
    }

    /// One page at this time.
    pub fn scan(&self, now_us: u64, query: &Scan) -> Page {
        match &query.target {
            ScanTarget::Due(state) => self.scan_due(now_us, query, *state),
            ScanTarget::Matching(filter) => self.walk(
                now_us,
                query,
                // As an index over the states that are not settled does: done and gone ones are not looked
                // at.
                |_, cell| filter.state.is_none_or(|state| state == cell.state || is_settled(state)),
                |id, cell| filter.matches(id, cell.state),
            ),
            ScanTarget::StepsOf(parent) => {
                let is_step = |id: &Id, _: &Cell| id.parent().as_ref() == Some(parent);
                self.walk(now_us, query, is_step, |_, _| true)
            }
        }
    }

    /// Every record at this time, in the order of the ids.
    pub fn all(&self, now_us: u64) -> impl Iterator<Item = (&Id, Found)> {
        self.cells.iter().map(move |(id, cell)| (id, cell.found(now_us)))
    }

    /// What ends with its writer is over now, as in a store that is opened by its only process.
    pub fn end_leases(&mut self, now_us: u64) {
        for cell in self.cells.values_mut().filter(|cell| cell.ends_with_writer) {
            cell.due_us = Some(cell.due_us.map_or(now_us, |due| due.min(now_us)));
        }
    }

    fn scan_due(&self, now_us: u64, query: &Scan, state: Option<State>) -> Page {
        let mut due: Vec<(u64, &Id)> = self
            .cells
            .iter()
            .filter(|(_, cell)| state.is_none_or(|state| state == cell.state))
            .filter_map(|(id, cell)| cell.due_us.filter(|due| *due <= now_us).map(|due| (due, id)))
            .filter(|(due, id)| query.after.as_ref().is_none_or(|after| *place(*due, id) > *after.0))
            .collect();
        due.sort_unstable();
        let more = due.len() > query.limit;
        due.truncate(query.limit);
        let next = due.last().filter(|_| more).map(|(due, id)| Cursor(place(*due, id).into()));
        let found = due.iter().map(|(_, id)| ((*id).clone(), self.cells[*id].found(now_us))).collect();
        Page::new(found, next)
    }

    /// Looks at those that are `listed`, as an index lists them, and gives those of them that match.
    fn walk(
        &self,
        now_us: u64,
        query: &Scan,
        listed: impl Fn(&Id, &Cell) -> bool,
        matches: impl Fn(&Id, &Cell) -> bool,
    ) -> Page {
        let after = query.after.as_ref().and_then(|after| Id::from_bytes(&after.0).ok());
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.cells.range((start, Bound::Unbounded)).filter(|(id, cell)| listed(id, cell));
        let looked: Vec<(&Id, &Cell)> = rest.by_ref().take(query.limit).collect();
        let last = looked.last().filter(|_| rest.next().is_some());
        let next = last.map(|(id, _)| Cursor(Bytes::copy_from_slice(id.as_bytes())));
        let found = looked.iter().filter(|(id, cell)| matches(id, cell));
        let found = found.map(|(id, cell)| ((*id).clone(), cell.found(now_us))).collect();
        Page::new(found, next)
    }
}

impl Cell {
    fn written(new: &Record, version: Version, created_us: u64, now_us: u64) -> Self {
        Self {
            version,
            state: new.state,
            due_us: new.due_in.map(|due_in| now_us.saturating_add(micros(due_in))),
            ends_with_writer: new.ends_with_writer,
            created_us,
            updated_us: now_us,
            bytes: new.bytes.clone(),
        }
    }

    fn found(&self, now_us: u64) -> Found {
        Found::new(
            self.version,
            self.state,
            Due::between(now_us, self.due_us),
            Age::between(now_us, self.created_us, self.updated_us),
            self.bytes.clone(),
        )
    }
}

/// Whether records of this state are many and need nobody's attention.
fn is_settled(state: State) -> bool {
    matches!(state, State::Done | State::Gone)
}

/// A place in the order of due times.
fn place(due_us: u64, id: &Id) -> Vec<u8> {
    [&due_us.to_be_bytes()[..], id.as_bytes()].concat()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A [`Book`] as a store, by the machine's clock.
#[derive(Debug)]
pub struct Reference {
    book: Mutex<Book>,
    signals: broadcast::Sender<Id>,
}

impl Default for Reference {
    fn default() -> Self {
        Self { book: Mutex::default(), signals: broadcast::Sender::new(SIGNALS_MAX) }
    }
}

impl Reference {
    /// The promise.
    pub fn announced() -> Caps {
        let promises = Promises::default().with_atomic(true);
        Caps::new("reference", promises).with_hints(Hints::default().with_batches_in_flight(4))
    }

    /// A fresh and empty one.
    pub fn fresh() -> Arc<dyn Store> {
        Arc::new(Self::default())
    }

    fn with<'a, T: Send + 'a>(&self, work: impl FnOnce(&mut Book, u64) -> T) -> StoreFuture<'a, T> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(work(&mut book, SystemClock.now_us()))))
    }
}

impl Store for Reference {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let swap = |book: &mut Book, now_us| batch.iter().map(|swap| book.swap(now_us, swap)).collect();
            let answers: Vec<Swapped> = self.with(swap).await?;
            for (swap, answer) in batch.iter().zip(&answers) {
                if matches!(answer, Swapped::Won(_)) {
                    // Fails only if nobody listens.
                    let _ = self.signals.send(swap.id.clone());
                }
            }
            Ok(answers)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.with(|book, now_us| ids.iter().map(|id| Ok(book.load(now_us, id))).collect())
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.with(|book, now_us| book.scan(now_us, query))
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
        Some(Box::new(Listener(self.signals.subscribe())))
    }

    fn caps(&self) -> Caps {
        Self::announced()
    }
}

struct Listener(broadcast::Receiver<Id>);

impl Signals for Listener {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>> {
        Box::pin(async {
            match self.0.recv().await {
                Ok(id) => Some(id),
                Err(broadcast::error::RecvError::Lagged(_)) => None,
                // The store is gone: nothing changes any more.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        })
    }
}
