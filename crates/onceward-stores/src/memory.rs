//! The reference store: a map in this process. Fast, exact, and gone with the process.
//!
//! It knows nothing of disks or threads, so every future it returns is already done.

use std::collections::BTreeMap;
use std::future::ready;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use onceward::{
    Caps, Clock, Cursor, Due, Error, ErrorKind, Found, Fut, Id, Page, Record, Result, Scan, ScanOf, Seen,
    State, Store, Swap, Swapped, SystemClock, Version,
};

use crate::{SCAN_RECORDS_MAX, now_us};

/// A scan may move so many stale entries for each record it may return.
const MOVES_PER_RECORD_MAX: usize = 8;

/// Receipts in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

impl MemoryStore {
    /// An empty store that goes by the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store that goes by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, inner: Mutex::default() }
    }

    /// A panic elsewhere cannot leave the map half-changed: no user code runs under the mutex.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        let now_us = now_us(&*self.clock);
        let mut inner = self.inner();
        let answers = batch.iter().map(|swap| inner.swap(swap, now_us)).collect();
        drop(inner);
        Box::pin(ready(Ok(answers)))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        let now_us = now_us(&*self.clock);
        let inner = self.inner();
        let found = ids.iter().map(|id| inner.row(id).map(|row| row.found(now_us))).collect();
        drop(inner);
        Box::pin(ready(Ok(found)))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        let now_us = now_us(&*self.clock);
        let page = self.inner().scan(query, now_us);
        Box::pin(ready(page))
    }

    fn caps(&self) -> Caps {
        Caps {
            name: "memory",
            durable: false,
            atomic: true,
            shared: false,
            transactions: false,
            batches_in_flight: 1,
            gathers: false,
        }
    }
}

/// Rows lie in numbered places, so that a scan can go on where it stopped without an order over ids;
/// two indexes point at the places.
#[derive(Default)]
struct Inner {
    places: Vec<Option<Row>>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
    /// Each place with the hash of its id, so that growing need not look at the ids again.
    by_id: HashTable<(u64, u32)>,
    /// Ordered by due time; a version makes the key unique. A row has at most one entry, and it stands
    /// no later than the row falls due: a completion leaves the entry of its lease where it is, and the
    /// scan that comes upon it moves it. That halves the cost of a claim and its completion.
    by_due: BTreeMap<(u64, u64), u32>,
    /// The highest version ever given, over all ids: removed ids need no memory of their own.
    version_max: u64,
}

struct Row {
    id: Id,
    version: u64,
    state: State,
    due_us: Option<u64>,
    /// Where it stands in `by_due`.
    listed: Option<(u64, u64)>,
    bytes: Bytes,
}

impl Inner {
    fn swap(&mut self, swap: &Swap, now_us: u64) -> Swapped {
        let hash = self.hasher.hash_one(&swap.id);
        let place = self.place(&swap.id, hash);
        let row = place.map(|place| self.at(place));
        let as_seen = match (swap.seen, row) {
            (Seen::Absent, None) => true,
            (Seen::Version(version), Some(row)) => row.version == version.0,
            _ => false,
        };
        if !as_seen {
            return Swapped::Lost(row.map(|row| row.found(now_us)));
        }
        self.version_max = now_us.max(self.version_max + 1);
        let version = self.version_max;
        match (&swap.new, place) {
            (Some(record), Some(place)) => self.rewrite(place, record, version, now_us),
            (Some(record), None) => self.add(swap.id.clone(), hash, record, version, now_us),
            (None, Some(place)) => self.remove(place, hash),
            (None, None) => {}
        }
        Swapped::Won(Version(version))
    }

    fn rewrite(&mut self, place: u32, record: &Record, version: u64, now_us: u64) {
        let row = self.places[place as usize].as_mut().expect("an indexed place is taken");
        row.version = version;
        row.state = record.state;
        row.due_us = due_us(record.due_in, now_us);
        row.bytes.clone_from(&record.bytes);
        if let Some(due_us) = row.due_us
            && row.listed.is_none_or(|(listed_us, _)| listed_us > due_us)
        {
            self.list(place);
        }
    }

    /// Puts a row where it belongs in `by_due`.
    fn list(&mut self, place: u32) {
        let row = self.places[place as usize].as_mut().expect("an indexed place is taken");
        if let Some(listed) = row.listed.take() {
            self.by_due.remove(&listed);
        }
        row.listed = row.due_us.map(|due_us| (due_us, row.version));
        if let Some(listed) = row.listed {
            self.by_due.insert(listed, place);
        }
    }

    fn add(&mut self, id: Id, hash: u64, record: &Record, version: u64, now_us: u64) {
        let due_us = due_us(record.due_in, now_us);
        let row = Row { id, version, state: record.state, due_us, listed: None, bytes: record.bytes.clone() };
        let place = if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(row);
            place
        } else {
            self.places.push(Some(row));
            u32::try_from(self.places.len() - 1).expect("memory ends long before four billion rows")
        };
        self.by_id.insert_unique(hash, (hash, place), |&(hash, _)| hash);
        if due_us.is_some() {
            self.list(place);
        }
    }

    fn remove(&mut self, place: u32, hash: u64) {
        if let Ok(entry) = self.by_id.find_entry(hash, |&(_, other)| other == place) {
            entry.remove();
        }
        let row = self.places[place as usize].take().expect("an indexed place is taken");
        if let Some(listed) = row.listed {
            self.by_due.remove(&listed);
        }
        self.free.push(place);
    }

    fn scan(&mut self, query: &Scan, now_us: u64) -> Result<Page> {
        let limit = query.limit.clamp(1, SCAN_RECORDS_MAX);
        match &query.of {
            ScanOf::Due => self.scan_due(query.after.as_ref(), limit, now_us),
            ScanOf::Matching { scope, operation, state } => {
                let wanted = |row: &Row| {
                    scope.as_ref().is_none_or(|scope| row.id.scope() == scope)
                        && operation.as_ref().is_none_or(|operation| row.id.operation() == operation)
                        && state.is_none_or(|state| row.state == state)
                };
                self.scan_places(query.after.as_ref(), limit, now_us, wanted)
            }
        }
    }

    fn scan_due(&mut self, after: Option<&Cursor>, limit: usize, now_us: u64) -> Result<Page> {
        let mut after = match after {
            None => Bound::Unbounded,
            Some(cursor) => Bound::Excluded((number(cursor, 0)?, number(cursor, 8)?)),
        };
        let mut page = Page::default();
        for _ in 0..limit * MOVES_PER_RECORD_MAX {
            let next = self.by_due.range((after, Bound::Unbounded)).next();
            let Some((&listed, &place)) = next.filter(|((due_us, _), _)| *due_us <= now_us) else {
                return Ok(page);
            };
            after = Bound::Excluded(listed);
            let row = self.at(place);
            if row.due_us != Some(listed.0) {
                self.list(place);
                continue;
            }
            page.found.push((row.id.clone(), row.found(now_us)));
            if page.found.len() == limit {
                break;
            }
        }
        if let Bound::Excluded((due_us, version)) = after {
            let cursor = [due_us.to_be_bytes(), version.to_be_bytes()].concat();
            page.next = Some(Cursor(cursor.into()));
        }
        Ok(page)
    }

    fn scan_places(
        &self,
        after: Option<&Cursor>,
        limit: usize,
        now_us: u64,
        wanted: impl Fn(&Row) -> bool,
    ) -> Result<Page> {
        let start = match after {
            None => 0,
            Some(cursor) => usize::try_from(number(cursor, 0)?).unwrap_or(usize::MAX),
        };
        let end = start.saturating_add(limit).min(self.places.len());
        let slice = self.places.get(start..end).unwrap_or_default();
        let found = slice
            .iter()
            .flatten()
            .filter(|row| wanted(row))
            .map(|row| (row.id.clone(), row.found(now_us)))
            .collect();
        let next =
            (end < self.places.len()).then(|| Cursor(Bytes::copy_from_slice(&(end as u64).to_be_bytes())));
        Ok(Page { found, next })
    }

    fn row(&self, id: &Id) -> Option<&Row> {
        self.place(id, self.hasher.hash_one(id)).map(|place| self.at(place))
    }

    fn place(&self, id: &Id, hash: u64) -> Option<u32> {
        let found = self.by_id.find(hash, |&(other, place)| other == hash && self.at(place).id == *id);
        found.map(|&(_, place)| place)
    }

    fn at(&self, place: u32) -> &Row {
        self.places[place as usize].as_ref().expect("an indexed place is taken")
    }
}

impl Row {
    fn found(&self, now_us: u64) -> Found {
        Found {
            version: Version(self.version),
            state: self.state,
            due: Due::between(now_us, self.due_us),
            bytes: self.bytes.clone(),
        }
    }
}

fn due_us(due_in: Option<Duration>, now_us: u64) -> Option<u64> {
    due_in.map(|due_in| now_us.saturating_add(u64::try_from(due_in.as_micros()).unwrap_or(u64::MAX)))
}

fn number(cursor: &Cursor, at: usize) -> Result<u64> {
    cursor
        .0
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_be_bytes)
        .ok_or_else(|| Error::new(ErrorKind::Invalid, "the cursor is not one of this store's"))
}
