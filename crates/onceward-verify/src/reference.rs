//! The simplest store that is right: an ordered map behind one mutex. The simulated store and the broken
//! ones are made of it, so that what they add is exactly what they add.

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Caps, Clock, Cursor, Due, Found, Fut, Id, Page, Record, Scan, ScanOf, Seen, State, Store, Swap, Swapped,
    SystemClock, Version,
};

/// Records as data, without a clock and without concurrency: whoever holds it says what time it is.
#[derive(Clone, Debug, Default)]
pub struct Book {
    cells: BTreeMap<Id, Cell>,
    /// The highest version ever given, to any id: so that no id needs to be remembered once it is gone.
    highest: u64,
}

#[derive(Clone, Debug)]
struct Cell {
    version: Version,
    state: State,
    due_us: Option<u64>,
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
        self.highest = now_us.max(self.highest + 1);
        let version = Version(self.highest);
        match &swap.new {
            None => drop(self.cells.remove(&swap.id)),
            Some(new) => drop(self.cells.insert(swap.id.clone(), Cell::written(new, version, now_us))),
        }
        Swapped::Won(version)
    }

    /// What is there at this time.
    pub fn load(&self, now_us: u64, id: &Id) -> Option<Found> {
        self.cells.get(id).map(|cell| cell.found(now_us))
    }

    /// One page at this time.
    pub fn scan(&self, now_us: u64, query: &Scan) -> Page {
        match &query.of {
            ScanOf::Due => self.scan_due(now_us, query),
            ScanOf::Matching { scope, operation, state } => self.scan_matching(now_us, query, |id, cell| {
                scope.as_ref().is_none_or(|scope| id.scope() == scope)
                    && operation.as_ref().is_none_or(|operation| id.operation() == operation)
                    && state.is_none_or(|state| cell.state == state)
            }),
        }
    }

    /// Every record at this time, in the order of the ids.
    pub fn all(&self, now_us: u64) -> impl Iterator<Item = (&Id, Found)> {
        self.cells.iter().map(move |(id, cell)| (id, cell.found(now_us)))
    }

    /// Ends every lease now, as a store does that was opened by its only process.
    pub fn end_leases(&mut self, now_us: u64) {
        for cell in self.cells.values_mut().filter(|cell| cell.state == State::Held) {
            cell.due_us = cell.due_us.map(|due| due.min(now_us));
        }
    }

    fn scan_due(&self, now_us: u64, query: &Scan) -> Page {
        let mut due: Vec<(u64, &Id)> = self
            .cells
            .iter()
            .filter_map(|(id, cell)| cell.due_us.filter(|due| *due <= now_us).map(|due| (due, id)))
            .filter(|(due, id)| query.after.as_ref().is_none_or(|after| *place(*due, id) > *after.0))
            .collect();
        due.sort_unstable();
        let more = due.len() > query.limit;
        due.truncate(query.limit);
        let next = due.last().filter(|_| more).map(|(due, id)| Cursor(place(*due, id).into()));
        Page {
            found: due.iter().map(|(_, id)| ((*id).clone(), self.cells[*id].found(now_us))).collect(),
            next,
        }
    }

    fn scan_matching(&self, now_us: u64, query: &Scan, matches: impl Fn(&Id, &Cell) -> bool) -> Page {
        let after = query.after.as_ref().and_then(|after| Id::from_bytes(&after.0).ok());
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.cells.range((start, Bound::Unbounded));
        let looked: Vec<(&Id, &Cell)> = rest.by_ref().take(query.limit).collect();
        let last = looked.last().filter(|_| rest.next().is_some());
        let next = last.map(|(id, _)| Cursor(Bytes::copy_from_slice(id.as_bytes())));
        let found = looked.iter().filter(|(id, cell)| matches(id, cell));
        Page { found: found.map(|(id, cell)| ((*id).clone(), cell.found(now_us))).collect(), next }
    }
}

impl Cell {
    fn written(new: &Record, version: Version, now_us: u64) -> Self {
        let due_us = new.due_in.map(|due_in| now_us.saturating_add(micros(due_in)));
        Self { version, state: new.state, due_us, bytes: new.bytes.clone() }
    }

    fn found(&self, now_us: u64) -> Found {
        Found {
            version: self.version,
            state: self.state,
            due: Due::between(now_us, self.due_us),
            bytes: self.bytes.clone(),
        }
    }
}

/// A place in the order of due times.
fn place(due_us: u64, id: &Id) -> Vec<u8> {
    [&due_us.to_be_bytes()[..], id.as_bytes()].concat()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A [`Book`] as a store, by the machine's clock.
#[derive(Debug, Default)]
pub struct Reference {
    book: Mutex<Book>,
}

impl Reference {
    /// What it promises.
    pub const CAPS: Caps = Caps {
        name: "reference",
        durable: false,
        atomic: true,
        shared: false,
        transactions: false,
        batches_in_flight: 4,
        gathers: false,
    };

    /// A fresh and empty one.
    pub fn fresh() -> Arc<dyn Store> {
        Arc::new(Self::default())
    }

    fn with<'a, T: Send + 'a>(&self, work: impl FnOnce(&mut Book, u64) -> T) -> Fut<'a, T> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(ready(Ok(work(&mut book, SystemClock.now_us()))))
    }
}

impl Store for Reference {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(async move {
            self.with(|book, now_us| batch.iter().map(|swap| book.swap(now_us, swap)).collect()).await
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        self.with(|book, now_us| ids.iter().map(|id| book.load(now_us, id)).collect())
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        self.with(|book, now_us| book.scan(now_us, query))
    }

    fn caps(&self) -> Caps {
        Self::CAPS
    }
}
