//! Held rows and the ends of their leases, in memory and in one table for the next process.
//!
//! A claim is followed by a completion within moments, so leases are not put into the due index on
//! disk and taken out again. This process keeps them in memory. For the next process, every group lists
//! the rows that it left held in one block of the table `held`; the block is removed when none of them is
//! held under that version any more. Renewals move a lease to a newer block, so blocks do not outlive
//! a lease. The process that opens the folder reads the few blocks there are and knows every row that may
//! have lost its owner.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use onceward::{Error, ErrorKind, Id, Result, State};

use super::row::{OpenedAt, Row};
use super::row_block;
use super::tables::{Tables, cannot_read};

/// All held rows, by id. Belongs to the writer.
#[derive(Default)]
pub(crate) struct HeldRows {
    by_id: HashMap<Id, HeldLease>,
    /// The number of rows that are still held, by block.
    blocks: BTreeMap<u64, u32>,
    /// Blocks without held rows, to be removed with the next group.
    dead: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLease {
    block: u64,
    pub(crate) version: u64,
    /// When it ends; for one that lost its owner, at the latest when the folder was opened.
    due_us: u64,
    pub(crate) created: u64,
}

impl HeldLease {
    /// Its row without the receipt, to be used only for replacing it.
    pub(crate) fn row(&self) -> Row {
        Row {
            version: self.version,
            state: State::Held,
            due_us: self.due_us,
            created: self.created,
            ends_with_writer: false,
            bytes: Bytes::new(),
        }
    }
}

/// The changes of one group to the held rows: collected before its sync, applied after it.
#[derive(Default)]
pub(crate) struct HeldChange {
    removed: Vec<(u64, u64)>,
    added: Vec<((u64, u64), Id)>,
    /// The block of the group; empty if it leaves nothing newly held.
    pub(crate) block: Vec<u8>,
}

/// The ends of leases in order, each with its version. Shared with the thread that scans.
#[derive(Default)]
pub(crate) struct LeaseEnds(Mutex<BTreeMap<(u64, u64), Id>>);

impl HeldRows {
    /// Reads all blocks from this one on, and the row of every id in them. Before it are only the
    /// tombstones of blocks.
    pub(crate) fn read(tables: &Tables, from: u64, opened: OpenedAt) -> Result<(Self, LeaseEnds)> {
        let mut held = Self::default();
        let mut ends = BTreeMap::new();
        for entry in tables.held.range(from.to_be_bytes()..) {
            let (key, value) = entry.into_inner().map_err(cannot_read)?;
            let block = key.as_ref().try_into().map(u64::from_be_bytes).map_err(|_| {
                Error::new(
                    ErrorKind::Damaged,
                    "the table of held rows is damaged; restore the folder from a copy",
                )
            })?;
            let mut rows = 0;
            for listed in row_block::entries(&value) {
                let (version, id) = listed?;
                match tables.row(&id) {
                    Ok(Some(row)) if row.state == State::Held && row.version == version => {
                        let due_us = row.effective_due_us(opened);
                        ends.insert((due_us, version), id.clone());
                        held.by_id.insert(id, HeldLease { block, version, due_us, created: row.created });
                        rows += 1;
                    }
                    Ok(_) => {}
                    // A failure of that id alone. It is listed, so that scans report it.
                    Err(error) => {
                        tracing::error!(?id, %error, "a receipt that was held cannot be read");
                        ends.insert((opened.at_us, version), id);
                        rows += 1;
                    }
                }
            }
            if rows > 0 {
                held.blocks.insert(block, rows);
            } else {
                held.dead.push(block);
            }
        }
        Ok((held, LeaseEnds(Mutex::new(ends))))
    }

    pub(crate) fn lease(&self, id: &Id) -> Option<HeldLease> {
        self.by_id.get(id).copied()
    }

    /// Records the change that the group `sequence` makes to a row.
    pub(crate) fn set(&mut self, id: &Id, row: Option<&Row>, sequence: u64, change: &mut HeldChange) {
        let before = match row.filter(|row| row.state == State::Held) {
            None => self.by_id.remove(id),
            Some(row) => {
                row_block::push(&mut change.block, row.version, id);
                change.added.push(((row.due_us, row.version), id.clone()));
                *self.blocks.entry(sequence).or_default() += 1;
                let Row { version, due_us, created, .. } = *row;
                let lease = HeldLease { block: sequence, version, due_us, created };
                self.by_id.insert(id.clone(), lease)
            }
        };
        if let Some(before) = before {
            change.removed.push((before.due_us, before.version));
            if let Some(rows) = self.blocks.get_mut(&before.block) {
                *rows -= 1;
                if *rows == 0 {
                    self.blocks.remove(&before.block);
                    self.dead.push(before.block);
                }
            }
        }
    }

    /// The first block that still has a row, once the group `sequence` is written.
    pub(crate) fn first_block(&self, sequence: u64) -> u64 {
        self.blocks.keys().next().copied().unwrap_or(sequence + 1)
    }

    /// The blocks that the current group may remove.
    pub(crate) fn take_dead(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dead)
    }
}

impl LeaseEnds {
    pub(crate) fn apply(&self, change: HeldChange) {
        let mut ends = self.lock();
        for removed in change.removed {
            ends.remove(&removed);
        }
        ends.extend(change.added);
    }

    /// The first leases after `after` that end no later than `until_us`; leases that never end have the highest
    /// time.
    pub(crate) fn first(
        &self,
        after: Bound<(u64, u64)>,
        until_us: u64,
        limit: usize,
    ) -> Vec<((u64, u64), Id)> {
        self.lock()
            .range((after, Bound::Unbounded))
            .take_while(|((due_us, _), _)| *due_us <= until_us)
            .take(limit)
            .map(|(end, id)| (*end, id.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), Id>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
