//! The scan over what is due: leases from memory, everything else from the due index, earliest first.
//!
//! A sweep removes rows at the head of the index. In an LSM tree their tombstones stay there for a
//! while, and a scan from the very beginning would walk over all of them each time. [`Floor`] says where
//! the live part begins; it is carried by every group, so that it also holds after a restart.

use std::iter::Peekable;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fjall::{Readable, Snapshot};
use onceward::{Cursor, Id, Page, Result, State};

use super::Shared;
use super::row::{Row, due_key, split_due_key};
use super::tables::cannot_read;

/// No row of the due index is due before this.
pub(crate) struct Floor(Mutex<Bounds>);

#[derive(Clone, Copy)]
struct Bounds {
    floor_us: u64,
    /// The earliest due time put in since the scan under way began: it cannot see that row, so it
    /// must not lift the floor above it.
    put_since_us: u64,
}

impl Floor {
    pub(crate) fn new(floor_us: u64) -> Self {
        Self(Mutex::new(Bounds { floor_us, put_since_us: u64::MAX }))
    }

    /// What holds once a group that puts in `earliest_us` is written.
    pub(crate) fn with(&self, earliest_us: u64) -> u64 {
        self.lock().floor_us.min(earliest_us)
    }

    /// A group that put in `earliest_us` has become visible.
    pub(crate) fn lower(&self, earliest_us: u64) {
        let mut bounds = self.lock();
        bounds.floor_us = bounds.floor_us.min(earliest_us);
        bounds.put_since_us = bounds.put_since_us.min(earliest_us);
    }

    /// To be called before the scan takes its snapshot. There is one scanning thread, so one scan.
    fn begin(&self) -> u64 {
        let mut bounds = self.lock();
        bounds.put_since_us = u64::MAX;
        bounds.floor_us
    }

    /// The scan has seen that nothing is due before `floor_us`.
    fn lift(&self, floor_us: u64) {
        let mut bounds = self.lock();
        bounds.floor_us = bounds.floor_us.max(floor_us.min(bounds.put_since_us));
    }

    fn lock(&self) -> MutexGuard<'_, Bounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One page of what is due. Looks at no more than `limit` rows.
pub(crate) fn scan(shared: &Shared, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let now_us = shared.clock.now_us();
    let after = after.map(|cursor| split_due_key(&cursor.0)).transpose()?;
    // Leases that lost their owner count from the opening, even if the clock was set back since.
    let leases = shared.lease_ends.first(after.as_ref(), now_us.max(shared.opened.at_us), limit);
    let floor_us = shared.floor.begin();
    // Taken after the leases were read, so that none of them can be younger than the rows.
    let snapshot = shared.tables.database.snapshot();
    let indexed = first_indexed(shared, &snapshot, after.as_ref(), floor_us, now_us, limit)?;
    if after.is_none() {
        shared.floor.lift(indexed.first().map_or(now_us.saturating_add(1), |(due_us, _)| *due_us));
    }

    let mut page = Page::default();
    let mut last = None;
    for (due_us, id) in merge(leases, indexed).take(limit) {
        if let Some(row) = row(shared, &snapshot, &id)?
            && is_due(&row, due_us, now_us, shared)
        {
            page.found.push((id.clone(), row.found(now_us, shared.opened)));
        }
        last = Some((last.map_or(1, |(seen, _)| seen + 1), due_key(due_us, id.as_bytes())));
    }
    page.next = last.filter(|(seen, _)| *seen == limit).map(|(_, key)| Cursor(key.into()));
    Ok(page)
}

fn first_indexed(
    shared: &Shared,
    snapshot: &Snapshot,
    after: Option<&(u64, Id)>,
    floor_us: u64,
    now_us: u64,
    limit: usize,
) -> Result<Vec<(u64, Id)>> {
    // The byte behind the key makes the start exclusive.
    let behind = after.map(|(due_us, id)| [due_key(*due_us, id.as_bytes()), vec![0]].concat());
    let start = due_key(floor_us, &[]).max(behind.unwrap_or_default());
    let end = due_key(now_us.saturating_add(1), &[]);
    if start >= end {
        return Ok(Vec::new());
    }
    let entries = snapshot.range(&shared.tables.due, start..end).take(limit);
    entries.map(|entry| split_due_key(&entry.key().map_err(cannot_read)?)).collect()
}

fn row(shared: &Shared, snapshot: &Snapshot, id: &Id) -> Result<Option<Row>> {
    match snapshot.get(&shared.tables.receipts, id.as_bytes()).map_err(cannot_read)? {
        None => Ok(None),
        Some(row) => Row::decode(id, &row).map(Some),
    }
}

/// A lease may have been renewed or completed since its end was read; an indexed row is as indexed.
fn is_due(row: &Row, due_us: u64, now_us: u64, shared: &Shared) -> bool {
    if row.state == State::Held {
        row.effective_due_us(shared.opened) == due_us && row.found(now_us, shared.opened).due.is_over()
    } else {
        row.due_us == due_us
    }
}

fn merge(left: Vec<(u64, Id)>, right: Vec<(u64, Id)>) -> impl Iterator<Item = (u64, Id)> {
    let mut left: Peekable<_> = left.into_iter().peekable();
    let mut right: Peekable<_> = right.into_iter().peekable();
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if a <= b => left.next(),
        (Some(_), None) => left.next(),
        _ => right.next(),
    })
}
