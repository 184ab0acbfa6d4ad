//! The reference store: a map in this process. Fast, exact, and gone with the process.
//!
//! It knows nothing of disks or threads, so every future it returns is already done.

use std::collections::BTreeSet;
use std::future::ready;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
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

/// Rows in one block. Blocks do not move, so a store that grows copies nothing; and an empty one is small.
const BLOCK_ROWS: usize = 256;

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
    blocks: Vec<Vec<Option<Row>>>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
    /// Each place with the hash of its id, so that growing need not look at the ids again.
    by_id: HashTable<(u64, u32)>,
    /// Due time and place. A row has at most one entry, and it stands no later than the row falls due: a
    /// completion leaves the entry of its lease where it is, and the scan that comes upon it moves it.
    /// That halves the cost of a claim and its completion.
    by_due: BTreeSet<(NonZeroU64, u32)>,
    /// The highest version ever given, over all ids: removed ids need no memory of their own.
    version_max: u64,
}

/// There are as many as receipts, so each byte counts: where nothing is due, that is a zero.
struct Row {
    id: Id,
    bytes: Bytes,
    version: u64,
    due_us: Option<NonZeroU64>,
    /// Where it stands in `by_due`.
    listed_us: Option<NonZeroU64>,
    state: State,
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
        let row = self.at_mut(place);
        row.version = version;
        row.state = record.state;
        row.due_us = due_us(record.due_in, now_us);
        row.bytes.clone_from(&record.bytes);
        if let Some(due_us) = row.due_us
            && row.listed_us.is_none_or(|listed_us| listed_us > due_us)
        {
            self.list(place);
        }
    }

    /// Puts a row where it belongs in `by_due`.
    fn list(&mut self, place: u32) {
        let row = self.at_mut(place);
        let due_us = row.due_us;
        if let Some(listed_us) = std::mem::replace(&mut row.listed_us, due_us) {
            self.by_due.remove(&(listed_us, place));
        }
        if let Some(due_us) = due_us {
            self.by_due.insert((due_us, place));
        }
    }

    fn add(&mut self, id: Id, hash: u64, record: &Record, version: u64, now_us: u64) {
        let due_us = due_us(record.due_in, now_us);
        let row =
            Row { id, bytes: record.bytes.clone(), version, due_us, listed_us: due_us, state: record.state };
        let place = match self.free.pop() {
            Some(place) => {
                *self.place_mut(place) = Some(row);
                place
            }
            None => self.push(row),
        };
        self.by_id.insert_unique(hash, (hash, place), |&(hash, _)| hash);
        if let Some(due_us) = due_us {
            self.by_due.insert((due_us, place));
        }
    }

    /// Puts a row into a new place.
    fn push(&mut self, row: Row) -> u32 {
        let place = u32::try_from(self.places()).expect("memory ends long before four billion rows");
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK_ROWS) {
            self.blocks.push(Vec::with_capacity(BLOCK_ROWS));
        }
        self.blocks.last_mut().expect("pushed if there was none").push(Some(row));
        place
    }

    /// How many places there are, taken or free.
    fn places(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK_ROWS + last.len())
    }

    fn remove(&mut self, place: u32, hash: u64) {
        if let Ok(entry) = self.by_id.find_entry(hash, |&(_, other)| other == place) {
            entry.remove();
        }
        let row = self.place_mut(place).take().expect("an indexed place is taken");
        if let Some(listed_us) = row.listed_us {
            self.by_due.remove(&(listed_us, place));
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
            Some(cursor) => Bound::Excluded(listed_at(cursor)?),
        };
        let mut page = Page::default();
        for _ in 0..limit * MOVES_PER_RECORD_MAX {
            let next = self.by_due.range((after, Bound::Unbounded)).next();
            let Some(&(due_us, place)) = next.filter(|(due_us, _)| due_us.get() <= now_us) else {
                return Ok(page);
            };
            after = Bound::Excluded((due_us, place));
            let row = self.at(place);
            if row.due_us != Some(due_us) {
                self.list(place);
                continue;
            }
            page.found.push((row.id.clone(), row.found(now_us)));
            if page.found.len() == limit {
                break;
            }
        }
        if let Bound::Excluded((due_us, place)) = after {
            let cursor = [due_us.get(), u64::from(place)].map(u64::to_be_bytes).concat();
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
        let end = start.saturating_add(limit).min(self.places());
        let found = (start..end)
            .filter_map(|at| self.blocks[at / BLOCK_ROWS][at % BLOCK_ROWS].as_ref())
            .filter(|row| wanted(row))
            .map(|row| (row.id.clone(), row.found(now_us)))
            .collect();
        let next = (end < self.places()).then(|| Cursor(Bytes::copy_from_slice(&(end as u64).to_be_bytes())));
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
        let place = place as usize;
        self.blocks[place / BLOCK_ROWS][place % BLOCK_ROWS].as_ref().expect("an indexed place is taken")
    }

    fn at_mut(&mut self, place: u32) -> &mut Row {
        self.place_mut(place).as_mut().expect("an indexed place is taken")
    }

    fn place_mut(&mut self, place: u32) -> &mut Option<Row> {
        let place = place as usize;
        &mut self.blocks[place / BLOCK_ROWS][place % BLOCK_ROWS]
    }
}

impl Row {
    fn found(&self, now_us: u64) -> Found {
        Found {
            version: Version(self.version),
            state: self.state,
            due: Due::between(now_us, self.due_us.map(NonZeroU64::get)),
            bytes: self.bytes.clone(),
        }
    }
}

fn due_us(due_in: Option<Duration>, now_us: u64) -> Option<NonZeroU64> {
    let due_us = now_us.saturating_add(u64::try_from(due_in?.as_micros()).unwrap_or(u64::MAX));
    Some(NonZeroU64::new(due_us).unwrap_or(NonZeroU64::MIN))
}

/// The place in `by_due` behind which a scan goes on.
fn listed_at(cursor: &Cursor) -> Result<(NonZeroU64, u32)> {
    let due_us = NonZeroU64::new(number(cursor, 0)?).ok_or_else(foreign)?;
    Ok((due_us, u32::try_from(number(cursor, 8)?).map_err(|_| foreign())?))
}

fn number(cursor: &Cursor, at: usize) -> Result<u64> {
    cursor
        .0
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_be_bytes)
        .ok_or_else(foreign)
}

fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}
