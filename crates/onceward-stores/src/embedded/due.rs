//! The scan over what is due: leases from memory, everything else from the due index, earliest first.
//!
//! The due index lists the rows of one group that fall due at the same moment in one block, under
//! that moment and the group's sequence. Entries are not taken out when their row changes; the scan
//! passes over stale ones, and [`Floor`] remembers how far everything is stale, so that neither they
//! nor the tombstones of removed blocks are walked over again and again.
//!
//! ```text
//!   due index   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░█████████████████
//!               stale, removed  ↑ floor           ↑ now
//! ```

use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fjall::{Readable, Snapshot};
use onceward::{Cursor, Error, ErrorKind, Id, Page, Result};

use super::reader::PAGE_BYTES_MAX;
use super::row::Row;
use super::tables::cannot_read;
use super::{Shared, block};

/// Everything of the due index before this place is stale.
pub(crate) struct Floor(Mutex<Bounds>);

struct Bounds {
    floor: Place,
    /// The earliest due time put in since the scan under way began: it cannot see that row, so it
    /// must not lift the floor above it.
    put_since_us: u64,
    /// Blocks below the floor that the writer has not removed yet.
    dead: Vec<[u8; 16]>,
}

/// A place in the order of the scan; at the same moment leases come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    due_us: u64,
    source: u8,
    /// A lease's version, or the sequence of a block.
    number: u64,
    /// Which entry of the block.
    entry: u64,
}

/// So many slices of nothing but stale entries are passed over in one scan.
const STALE_SLICES_MAX: usize = 8;

const LEASE: u8 = 0;
const INDEX: u8 = 1;

/// A row that may be due.
struct Candidate {
    at: Place,
    version: u64,
    id: Id,
}

impl Floor {
    pub(crate) fn new(floor_us: u64) -> Self {
        let floor = Place::first_indexed(floor_us);
        Self(Mutex::new(Bounds { floor, put_since_us: u64::MAX, dead: Vec::new() }))
    }

    /// What holds once a group that puts in `earliest_us` is written.
    pub(crate) fn with(&self, earliest_us: u64) -> u64 {
        self.lock().floor.due_us.min(earliest_us)
    }

    /// A group that put in `earliest_us` has become visible.
    pub(crate) fn lower(&self, earliest_us: u64) {
        let mut bounds = self.lock();
        bounds.floor = bounds.floor.min(Place::first_indexed(earliest_us));
        bounds.put_since_us = bounds.put_since_us.min(earliest_us);
    }

    /// Blocks that the group under way may remove; none twice.
    pub(crate) fn take_dead(&self) -> Vec<[u8; 16]> {
        let mut dead = std::mem::take(&mut self.lock().dead);
        dead.sort_unstable();
        dead.dedup();
        dead
    }

    /// To be called before the scan takes its snapshot. There is one scanning thread, so one scan.
    fn begin(&self) -> Place {
        let mut bounds = self.lock();
        bounds.put_since_us = u64::MAX;
        bounds.floor
    }

    /// The scan has seen that everything before `floor` is stale, `blocks` among it.
    fn lift(&self, floor: Place, blocks: impl Iterator<Item = [u8; 16]>) {
        let mut bounds = self.lock();
        let floor = floor.min(Place::first_indexed(bounds.put_since_us));
        bounds.floor = bounds.floor.max(floor);
        // An entry never comes alive again, so these are dead wherever the floor is.
        bounds.dead.extend(blocks);
    }

    fn lock(&self) -> MutexGuard<'_, Bounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a block of the due index.
pub(crate) fn block_key(due_us: u64, sequence: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&due_us.to_be_bytes());
    key[8..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// One page of what is due. Passes over stale entries, but not without end.
pub(crate) fn scan(shared: &Shared, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let mut page = slice(shared, after, limit)?;
    for _ in 0..STALE_SLICES_MAX {
        if !page.found.is_empty() || page.next.is_none() {
            break;
        }
        page = slice(shared, page.next.as_ref(), limit)?;
    }
    Ok(page)
}

/// Looks at no more than `limit` entries.
fn slice(shared: &Shared, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let now_us = shared.now_us();
    let after = after.map(Place::from_cursor).transpose()?;
    let leases = due_leases(shared, after, now_us, limit);
    let floor = shared.floor.begin();
    // Taken after the leases were read, so that none of them can be younger than the rows.
    let snapshot = shared.tables.database.snapshot();
    let start = after.map_or(floor, |after| after.next_indexed().max(floor));
    let indexed = first_indexed(shared, &snapshot, start, now_us, limit)?;

    let mut page = Page::default();
    let (mut looked_at, mut bytes) = (0, 0);
    let mut last = None;
    let mut first_live = None;
    let mut blocks = Vec::new();
    for candidate in merge(leases, indexed).take(limit) {
        let at = candidate.at;
        let row = row(shared, &snapshot, &candidate.id)?;
        bytes += row.as_ref().map_or(0, |row| row.bytes.len());
        let row = row.filter(|row| row.version == candidate.version);
        if at.source == INDEX && first_live.is_none() {
            first_live = row.is_some().then_some(at);
            blocks.push(block_key(at.due_us, at.number));
        }
        if let Some(row) = row {
            let found = row.found(now_us, shared.opened);
            if found.due.is_over() {
                page.found.push((candidate.id, found));
            }
        }
        looked_at += 1;
        last = Some(at);
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    if looked_at == limit || bytes >= PAGE_BYTES_MAX {
        page.next = last.map(Place::to_cursor);
    }
    // Only a scan that began at the floor can tell that nothing lives between it and this place.
    if start <= floor {
        let end = Place::first_indexed(now_us.saturating_add(1));
        let reached = match (first_live, &page.next) {
            (Some(live), _) => live,
            (None, None) => end,
            // A lease that lost its owner may stand behind what the index was read up to.
            (None, Some(_)) => last.map_or(floor, Place::next_indexed).min(end),
        };
        let reached = reached.max(floor);
        blocks.dedup();
        let reached_block = block_key(reached.due_us, reached.number);
        shared.floor.lift(reached, blocks.into_iter().filter(|&block| block < reached_block));
    }
    Ok(page)
}

fn due_leases(shared: &Shared, after: Option<Place>, now_us: u64, limit: usize) -> Vec<Candidate> {
    let after = match after {
        None => Bound::Unbounded,
        Some(Place { due_us, source: LEASE, number, .. }) => Bound::Excluded((due_us, number)),
        Some(Place { due_us, .. }) => Bound::Excluded((due_us, u64::MAX)),
    };
    // Leases that lost their owner count from the opening, even if the clock was set back since.
    let leases = shared.lease_ends.first(after, now_us.max(shared.opened.at_us), limit);
    let candidate = |((due_us, version), id)| Candidate {
        at: Place { due_us, source: LEASE, number: version, entry: 0 },
        version,
        id,
    };
    leases.into_iter().map(candidate).collect()
}

fn first_indexed(
    shared: &Shared,
    snapshot: &Snapshot,
    start: Place,
    now_us: u64,
    limit: usize,
) -> Result<Vec<Candidate>> {
    let first = block_key(start.due_us, start.number);
    let end = block_key(now_us.saturating_add(1), 0);
    let mut candidates = Vec::new();
    if first >= end {
        return Ok(candidates);
    }
    for entry in snapshot.range(&shared.tables.due, first..end) {
        let (key, value) = entry.into_inner().map_err(cannot_read)?;
        let (due_us, sequence) = split_block_key(&key)?;
        for (entry, listed) in (0..).zip(block::entries(&value)) {
            let (version, id) = listed?;
            let at = Place { due_us, source: INDEX, number: sequence, entry };
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

fn row(shared: &Shared, snapshot: &Snapshot, id: &Id) -> Result<Option<Row>> {
    match snapshot.get(&shared.tables.receipts, id.as_bytes()).map_err(cannot_read)? {
        None => Ok(None),
        Some(row) => Row::decode(id, &row).map(Some),
    }
}

fn merge(leases: Vec<Candidate>, indexed: Vec<Candidate>) -> impl Iterator<Item = Candidate> {
    let (mut leases, mut indexed) = (leases.into_iter().peekable(), indexed.into_iter().peekable());
    std::iter::from_fn(move || match (leases.peek(), indexed.peek()) {
        (Some(lease), Some(other)) if lease.at < other.at => leases.next(),
        (Some(_), None) => leases.next(),
        _ => indexed.next(),
    })
}

fn split_block_key(key: &[u8]) -> Result<(u64, u64)> {
    let numbers = |key: &[u8; 16]| {
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| key[at + i]));
        (number(0), number(8))
    };
    key.try_into().map(numbers).map_err(|_| {
        Error::new(ErrorKind::Damaged, "a key of the due index is damaged; restore the folder from a copy")
    })
}

impl Place {
    fn first_indexed(due_us: u64) -> Self {
        Self { due_us, source: INDEX, number: 0, entry: 0 }
    }

    /// The first place of the due index behind this one.
    fn next_indexed(self) -> Self {
        if self.source == LEASE {
            Self::first_indexed(self.due_us)
        } else {
            Self { entry: self.entry + 1, ..self }
        }
    }

    fn to_cursor(self) -> Cursor {
        let mut bytes = vec![self.source];
        bytes.extend([self.due_us, self.number, self.entry].into_iter().flat_map(u64::to_be_bytes));
        Cursor(bytes.into())
    }

    fn from_cursor(cursor: &Cursor) -> Result<Self> {
        let [source @ (LEASE | INDEX), numbers @ ..] = &cursor.0[..] else {
            return Err(strange_cursor());
        };
        let numbers: &[u8; 24] = numbers.try_into().map_err(|_| strange_cursor())?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| numbers[at + i]));
        Ok(Self {
            due_us: number(0),
            source: *source,
            number: number(8),
            entry: number(16).min(u64::MAX - 1),
        })
    }
}

fn strange_cursor() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}

#[cfg(test)]
#[path = "due_test.rs"]
mod tests;
