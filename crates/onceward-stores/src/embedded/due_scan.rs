//! Scans for due rows, earliest first: leases from memory, everything else from the due index.
//!
//! The due index has two lists: waiting rows, which workers scan often, and the rest. It lists
//! the rows of one group that fall due at the same moment in one block, under that moment and the group's
//! sequence. Entries are not removed when their row changes; the scan skips stale ones, and [`Floor`] records up to
//! where everything is stale, so that stale entries and the tombstones of removed blocks are not read each time.
//!
//! ```text
//!   one list    ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░█████████████████
//!               stale, removed  ↑ floor           ↑ now
//! ```

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward::{Cursor, Error, ErrorKind, Filter, Id, Page, Result, State};

use super::reader::PageBuilder;
use super::row::{DUE_LISTS, DueList};
use super::tables::cannot_read;
use super::{EmbeddedInner, row_block};
use crate::kit::cursor;

/// How many slices with only stale entries one scan may skip.
const STALE_SLICES_MAX: usize = 8;

/// A block's key: list, due time, sequence.
type BlockKey = [u8; 17];

/// Everything in a list before this position is stale.
pub(crate) struct Floor(Mutex<FloorBounds>);

struct FloorBounds {
    floor: ScanPosition,
    /// The earliest due time inserted since the current scan began. The scan cannot see that row, so it must not
    /// raise the floor above it.
    put_since_us: u64,
    /// Blocks below the floor that the writer has not removed yet.
    dead: Vec<BlockKey>,
}

/// Where a row was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Leases,
    Index(DueList),
}

/// A position in the order of the scan; at the same due time leases come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScanPosition {
    due_us: u64,
    source: Source,
    /// A lease's version, or the sequence of a block.
    number: u64,
    /// Which entry of the block.
    entry: u64,
}

/// A row that may be due.
struct Candidate {
    at: ScanPosition,
    version: u64,
    id: Id,
}

/// Which rows a scan reads.
pub(crate) struct DueQuery<'a> {
    leases: bool,
    lists: &'a [DueList],
    /// Only rows that are due now.
    only_over: bool,
    filter: &'a Filter,
}

impl<'a> DueQuery<'a> {
    /// What is due, of the state that the filter names.
    pub(crate) fn due(filter: &'a Filter) -> Self {
        let (leases, lists): (bool, &[DueList]) = match filter.state {
            None => (true, &DUE_LISTS),
            Some(State::Held) => (true, &[]),
            Some(State::Waiting) => (false, &[DueList::Waiting]),
            Some(State::Done | State::Unknown | State::Dead | State::Gone) => (false, &[DueList::Rest]),
        };
        Self { leases, lists, only_over: true, filter }
    }

    /// Everything that is held.
    pub(crate) fn held(filter: &'a Filter) -> Self {
        Self { leases: true, lists: &[], only_over: false, filter }
    }

    /// All waiting rows that have a due time.
    pub(crate) fn waiting(filter: &'a Filter) -> Self {
        Self { leases: false, lists: &[DueList::Waiting], only_over: false, filter }
    }
}

impl Floor {
    pub(crate) fn new(list: DueList, floor_us: u64) -> Self {
        let floor = ScanPosition::first_of(list, floor_us);
        Self(Mutex::new(FloorBounds { floor, put_since_us: u64::MAX, dead: Vec::new() }))
    }

    /// The floor once a group that inserts `earliest_us` is written.
    pub(crate) fn with(&self, earliest_us: u64) -> u64 {
        self.lock().floor.due_us.min(earliest_us)
    }

    /// Lowers the floor: a group that inserted `earliest_us` has become visible.
    pub(crate) fn lower(&self, earliest_us: u64) {
        let mut bounds = self.lock();
        bounds.floor = bounds.floor.min(ScanPosition::first_at(bounds.floor.source, earliest_us));
        bounds.put_since_us = bounds.put_since_us.min(earliest_us);
    }

    /// Blocks that the current group may remove; each is returned once.
    pub(crate) fn take_dead(&self) -> Vec<BlockKey> {
        let mut dead = std::mem::take(&mut self.lock().dead);
        dead.sort_unstable();
        dead.dedup();
        dead
    }

    /// Must be called before the scan reads the list. There is one scanning thread, so at most one scan.
    fn begin(&self) -> ScanPosition {
        let mut bounds = self.lock();
        bounds.put_since_us = u64::MAX;
        bounds.floor
    }

    /// Raises the floor: the scan found everything before it stale, including `blocks`.
    fn raise(&self, floor: ScanPosition, blocks: impl Iterator<Item = BlockKey>) {
        let mut bounds = self.lock();
        let floor = floor.min(ScanPosition::first_at(floor.source, bounds.put_since_us));
        bounds.floor = bounds.floor.max(floor);
        // A stale entry stays stale, so these blocks are dead wherever the floor is.
        bounds.dead.extend(blocks);
    }

    fn lock(&self) -> MutexGuard<'_, FloorBounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a block of the due index.
pub(crate) fn block_key(list: DueList, due_us: u64, sequence: u64) -> BlockKey {
    let mut key = [0; 17];
    key[0] = list as u8;
    key[1..9].copy_from_slice(&due_us.to_be_bytes());
    key[9..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// One page. Skips stale entries, up to a limit.
pub(crate) fn scan(
    shared: &EmbeddedInner,
    query: &DueQuery<'_>,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let mut page = slice(shared, query, after, limit)?;
    for _ in 0..STALE_SLICES_MAX {
        if !page.found.is_empty() || !page.unreadable.is_empty() || page.next.is_none() {
            break;
        }
        page = slice(shared, query, page.next.as_ref(), limit)?;
    }
    Ok(page)
}

/// Reads at most `limit` entries.
fn slice(shared: &EmbeddedInner, query: &DueQuery<'_>, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let now_us = shared.now_us();
    let after = after.map(ScanPosition::from_cursor).transpose()?;
    let mut candidates = Vec::new();
    if query.leases {
        // Leases that lost their owner are due from the opening on, even if the clock was set back since.
        let until_us = if query.only_over { now_us.max(shared.opened().at_us) } else { u64::MAX };
        candidates.extend(leases(shared, after, until_us, limit));
    }
    let mut walks: Vec<ListWalk> =
        query.lists.iter().map(|&list| ListWalk::begin(shared, list, after)).collect();
    for walk in &walks {
        let until_us = if query.only_over { now_us } else { u64::MAX };
        candidates.extend(listed(shared, walk, until_us, limit)?);
    }
    candidates.sort_unstable_by_key(|candidate| candidate.at);

    let mut page = PageBuilder::new(shared, limit);
    let mut last = None;
    for Candidate { at, version, id } in candidates {
        // After the lists, so that what they name is there, or something newer.
        let row = shared.row(&id);
        let is_live = match &row {
            Ok(row) => row.as_ref().is_some_and(|row| row.version == version),
            // A row that cannot be read may be live.
            Err(_) => true,
        };
        if let Some(walk) = walks.iter_mut().find(|walk| Source::Index(walk.list) == at.source) {
            walk.pass(at, is_live);
        }
        if is_live {
            page.take(id, row, query.filter, query.only_over);
        } else {
            page.pass_stale(row.ok().flatten().as_ref());
        }
        last = Some(at);
        if page.is_full() {
            page.end_at(at.to_cursor());
            break;
        }
    }
    let page = page.build();
    if query.only_over {
        for walk in walks {
            walk.raise_floor(shared, last.filter(|_| page.next.is_some()), now_us);
        }
    }
    Ok(page)
}

/// The progress of a scan through one list.
struct ListWalk {
    list: DueList,
    floor: ScanPosition,
    start: ScanPosition,
    first_live: Option<ScanPosition>,
    /// The blocks read up to the first live entry.
    blocks: Vec<BlockKey>,
}

impl ListWalk {
    fn begin(shared: &EmbeddedInner, list: DueList, after: Option<ScanPosition>) -> Self {
        let floor = shared.floors[list as usize].begin();
        let start = after.map_or(floor, |after| after.next_in(list).max(floor));
        Self { list, floor, start, first_live: None, blocks: Vec::new() }
    }

    fn pass(&mut self, at: ScanPosition, is_live: bool) {
        if self.first_live.is_none() {
            self.first_live = is_live.then_some(at);
            self.blocks.push(block_key(self.list, at.due_us, at.number));
        }
    }

    /// `last` is where the scan stopped before the end of all lists.
    fn raise_floor(mut self, shared: &EmbeddedInner, last: Option<ScanPosition>, now_us: u64) {
        // Only a scan that began at the floor knows that there are no live entries between it and this position.
        if self.start > self.floor {
            return;
        }
        let end = ScanPosition::first_of(self.list, now_us.saturating_add(1));
        let reached = match (self.first_live, last) {
            (Some(live), _) => live,
            (None, None) => end,
            // A lease that lost its owner may come after the point up to which the index was read.
            (None, Some(last)) => last.next_in(self.list).min(end),
        };
        let reached = reached.max(self.floor);
        self.blocks.dedup();
        let reached_block = block_key(self.list, reached.due_us, reached.number);
        let dead = self.blocks.into_iter().filter(|&block| block < reached_block);
        shared.floors[self.list as usize].raise(reached, dead);
    }
}

fn leases(
    shared: &EmbeddedInner,
    after: Option<ScanPosition>,
    until_us: u64,
    limit: usize,
) -> impl Iterator<Item = Candidate> {
    let after = match after {
        None => Bound::Unbounded,
        Some(ScanPosition { due_us, source: Source::Leases, number, .. }) => {
            Bound::Excluded((due_us, number))
        }
        Some(ScanPosition { due_us, .. }) => Bound::Excluded((due_us, u64::MAX)),
    };
    let leases = shared.lease_ends.first(after, until_us, limit);
    leases.into_iter().map(|((due_us, version), id)| Candidate {
        at: ScanPosition { due_us, source: Source::Leases, number: version, entry: 0 },
        version,
        id,
    })
}

fn listed(shared: &EmbeddedInner, walk: &ListWalk, until_us: u64, limit: usize) -> Result<Vec<Candidate>> {
    let ListWalk { list, start, .. } = *walk;
    let first = block_key(list, start.due_us, start.number);
    // Rows that are never due are in no list, so no entry has the highest time.
    let end = block_key(list, until_us.saturating_add(1), 0);
    let mut candidates = Vec::new();
    if first >= end {
        return Ok(candidates);
    }
    for entry in shared.tables.due.range(first..end) {
        let (key, value) = entry.into_inner().map_err(cannot_read)?;
        let (due_us, sequence) = split_block_key(&key)?;
        for (entry, listed) in (0..).zip(row_block::entries(&value)) {
            let (version, id) = listed?;
            let at = ScanPosition { due_us, source: Source::Index(list), number: sequence, entry };
            if at >= start {
                candidates.push(Candidate { at, version, id });
            }
            if candidates.len() == limit {
                return Ok(candidates);
            }
        }
    }
    Ok(candidates)
}

fn split_block_key(key: &[u8]) -> Result<(u64, u64)> {
    let numbers = |key: &BlockKey| {
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| key[at + i]));
        (number(1), number(9))
    };
    key.try_into().map(numbers).map_err(|_| {
        Error::new(ErrorKind::Damaged, "a key of the due index is damaged; restore the folder from a copy")
    })
}

impl Source {
    /// As a cursor. Its first byte differs from those of the cursors of `index.rs`.
    fn byte(self) -> u8 {
        match self {
            Self::Leases => 0x10,
            Self::Index(DueList::Waiting) => 0x11,
            Self::Index(DueList::Rest) => 0x12,
        }
    }
}

impl ScanPosition {
    fn first_of(list: DueList, due_us: u64) -> Self {
        Self::first_at(Source::Index(list), due_us)
    }

    fn first_at(source: Source, due_us: u64) -> Self {
        Self { due_us, source, number: 0, entry: 0 }
    }

    /// The first position in a list after this one.
    fn next_in(self, list: DueList) -> Self {
        let source = Source::Index(list);
        match self.source.cmp(&source) {
            Ordering::Equal => Self { entry: self.entry + 1, ..self },
            Ordering::Less => Self::first_at(source, self.due_us),
            Ordering::Greater => Self::first_at(source, self.due_us.saturating_add(1)),
        }
    }

    fn to_cursor(self) -> Cursor {
        let mut bytes = vec![self.source.byte()];
        bytes.extend([self.due_us, self.number, self.entry].into_iter().flat_map(u64::to_be_bytes));
        Cursor(bytes.into())
    }

    fn from_cursor(cursor: &Cursor) -> Result<Self> {
        let sources = [Source::Leases].into_iter().chain(DUE_LISTS.map(Source::Index));
        let (source, numbers) = cursor.0.split_first().ok_or_else(cursor::foreign)?;
        let source = sources.into_iter().find(|known| known.byte() == *source).ok_or_else(cursor::foreign)?;
        let [due_us, number, entry] = cursor::unpack(&Cursor(bytes::Bytes::copy_from_slice(numbers)))?;
        Ok(Self { due_us, source, number, entry: entry.min(u64::MAX - 1) })
    }
}

#[cfg(test)]
#[path = "due_scan_test.rs"]
mod tests;
