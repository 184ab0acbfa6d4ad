//! Held rows, and the ends of their leases.
//!
//! A claim is followed by a completion within moments, so what is held is stored apart: in the table `held`, and only there.
//! Every group adds the rows that it leaves held as one block, and the versions that ended in it as one list. The table
//! `receipts` therefore gets one row for a claim and its completion, not two, and nothing is removed row by row. This
//! process keeps in memory which rows are held; the process that opens the folder reads what is left in the table: the
//! rows of all blocks but those that a list has as ended.
//!
//! ```text
//! group    held: rows       held: ended      receipts
//!   7      a1  b1  c1
//!   8      d1               a1  c1           a2  c2              done
//!   9                       b1               -                   released
//!  10      -7               d1  -8           d2
//! ```
//!
//! A block is removed one group after its last row ended, and a list when no block has a row of it. So that a long lease
//! keeps no others, rows that are large or outlive their process have blocks of their own; the rest is renewed, which
//! moves it to a newer block.
//!
//! A claim leaves the row in `receipts` that it replaces, so an id that exists is always in one of the two tables: a reader
//! that asks for what is held first and for `receipts` second finds the row of one moment between the two, without a lock
//! ([`EmbeddedInner::row`](super::EmbeddedInner::row)). A row that is found in both tables is no damage: the held one
//! counts.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fjall::OwnedWriteBatch;
use hashbrown::HashMap;
use onceward::{Id, Result, State};

use super::held_block::{self, BlockName, ENDED, Location, SHARED};
use super::row::{OpenedAt, Row};
use super::tables::{Tables, cannot_read};

/// A longer row has a block of its own.
const SHARED_ROW_BYTES_MAX: usize = 4096;

/// All held rows, by id. Belongs to the writer.
#[derive(Default)]
pub(crate) struct HeldRows {
    by_id: HashMap<Id, HeldLease>,
    blocks: BTreeMap<BlockName, Block>,
    /// The lists of what ended, by group: of how many blocks a list has rows.
    lists: BTreeMap<u64, u32>,
    /// Blocks without held rows, and lists without blocks, to be removed with the next group.
    dead_blocks: BTreeSet<BlockName>,
    dead_lists: Vec<u64>,
}

#[derive(Default)]
struct Block {
    /// The number of its rows that are still held.
    held: u32,
    /// The groups in which others ended, each once.
    ended_in: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLease {
    pub(crate) location: Location,
    pub(crate) version: u64,
    /// When it ends; for one that lost its owner, at the latest when the folder was opened.
    due_us: u64,
    pub(crate) created: u64,
    /// Whether its row was undamaged when the folder was opened.
    pub(crate) is_readable: bool,
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
pub(crate) struct HeldChange {
    sequence: u64,
    removed: Vec<((u64, u64), Id)>,
    added: Vec<((u64, u64), Id, Location)>,
    shared: Vec<u8>,
    own: Vec<(BlockName, Vec<u8>)>,
    ended: Vec<u8>,
    dead: Vec<BlockName>,
}

/// The ends of leases in order, each with its version, and where the rows of held ids are. Shared with the threads that read.
#[derive(Default)]
pub(crate) struct LeaseEnds(Mutex<Leases>);

#[derive(Default)]
struct Leases {
    ends: BTreeMap<(u64, u64), Id>,
    by_id: BTreeMap<ByBytes, Location>,
}

/// An id that can be searched for by its bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ByBytes(Id);

impl Borrow<[u8]> for ByBytes {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl HeldRows {
    /// Reads the table of held rows from this group on. Before it are only tombstones.
    pub(crate) fn read(tables: &Tables, from: u64, opened: OpenedAt) -> Result<(Self, LeaseEnds)> {
        let (mut held, mut leases) = (Self::default(), Leases::default());
        let mut by_version = HashMap::new();
        let mut lists = Vec::new();
        let first = BlockName { sequence: from, number: 0 };
        for entry in tables.held.range(first.to_key()..) {
            let (key, value) = entry.into_inner().map_err(cannot_read)?;
            let block = BlockName::from_key(&key)?;
            if block.number == ENDED {
                lists.push((block.sequence, value));
                continue;
            }
            held.blocks.insert(block, Block::default());
            for listed in held_block::entries(&value) {
                let listed = listed?;
                let location = Location { block, at: listed.at, len: listed.row.len() };
                let row = Row::decode(&listed.id, listed.row);
                by_version.insert(listed.version, (location, listed.id, row));
            }
        }
        for (sequence, list) in lists {
            for version in held_block::ended(&list)? {
                if let Some((location, ..)) = by_version.remove(&version) {
                    held.note_end(location.block, sequence);
                }
            }
            if !held.lists.contains_key(&sequence) {
                held.dead_lists.push(sequence);
            }
        }
        for (version, (location, id, row)) in by_version {
            let (due_us, created, is_readable) = match row {
                Ok(row) => (row.effective_due_us(opened), row.created, true),
                // A failure of that id alone. It is listed, so that scans report it.
                Err(error) => {
                    tracing::error!(?id, %error, "a receipt that was held cannot be read");
                    (opened.at_us, version, false)
                }
            };
            leases.add((due_us, version), id.clone(), location);
            held.add(id, HeldLease { location, version, due_us, created, is_readable });
        }
        let dead = held.blocks.iter().filter(|(_, block)| block.held == 0).map(|(name, _)| *name);
        held.dead_blocks = dead.collect();
        Ok((held, LeaseEnds(Mutex::new(leases))))
    }

    pub(crate) fn lease(&self, id: &Id) -> Option<HeldLease> {
        self.by_id.get(id).copied()
    }

    /// Begins the changes of a group. It removes what was dead before it: a reader that found a row there has been answered,
    /// or finds out that it is elsewhere.
    pub(crate) fn begin(&mut self, sequence: u64) -> HeldChange {
        let mut dead: Vec<_> = std::mem::take(&mut self.dead_lists).into_iter().map(list_name).collect();
        for name in std::mem::take(&mut self.dead_blocks) {
            dead.push(name);
            for list in self.blocks.remove(&name).map(|block| block.ended_in).unwrap_or_default() {
                let blocks = self.lists.get_mut(&list).expect("it is kept while it has rows of blocks");
                *blocks -= 1;
                if *blocks == 0 {
                    self.lists.remove(&list);
                    dead.push(list_name(list));
                }
            }
        }
        HeldChange {
            sequence,
            removed: Vec::new(),
            added: Vec::new(),
            shared: Vec::new(),
            own: Vec::new(),
            ended: Vec::new(),
            dead,
        }
    }

    /// A group leaves this row held; `encoded` is its bytes.
    pub(crate) fn hold(&mut self, id: &Id, row: &Row, encoded: &[u8], change: &mut HeldChange) {
        self.end(id, change);
        let Row { version, due_us, created, .. } = *row;
        let (sequence, mut number) = (change.sequence, SHARED);
        let at = if row.ends_with_writer && encoded.len() <= SHARED_ROW_BYTES_MAX {
            held_block::push(&mut change.shared, version, id, encoded)
        } else {
            number += 1 + u32::try_from(change.own.len()).expect("a group has far fewer");
            let mut block = Vec::new();
            let at = held_block::push(&mut block, version, id, encoded);
            change.own.push((BlockName { sequence, number }, block));
            at
        };
        let location = Location { block: BlockName { sequence, number }, at, len: encoded.len() };
        change.added.push(((due_us, version), id.clone(), location));
        self.blocks.entry(location.block).or_default();
        self.add(id.clone(), HeldLease { location, version, due_us, created, is_readable: true });
    }

    /// A group leaves this id not held, or held under another version.
    pub(crate) fn end(&mut self, id: &Id, change: &mut HeldChange) {
        let Some(lease) = self.by_id.remove(id) else { return };
        change.removed.push(((lease.due_us, lease.version), id.clone()));
        change.ended.extend(lease.version.to_le_bytes());
        let name = lease.location.block;
        self.note_end(name, change.sequence);
        let block = self.blocks.get_mut(&name).expect("it is kept while it has held rows");
        block.held -= 1;
        if block.held == 0 {
            self.dead_blocks.insert(name);
        }
    }

    /// The first group of which something is left in the table, once the group `sequence` is written.
    pub(crate) fn first_group(&self, sequence: u64) -> u64 {
        let block = self.blocks.keys().next().map(|name| name.sequence);
        let list = self.lists.keys().next().copied();
        block.into_iter().chain(list).min().unwrap_or(sequence + 1)
    }

    fn add(&mut self, id: Id, lease: HeldLease) {
        self.blocks.get_mut(&lease.location.block).expect("it was added before its rows").held += 1;
        self.by_id.insert(id, lease);
    }

    /// A row of this block ended in that group.
    fn note_end(&mut self, block: BlockName, sequence: u64) {
        let block = self.blocks.get_mut(&block).expect("it is kept while it has held rows");
        if block.ended_in.last() != Some(&sequence) {
            block.ended_in.push(sequence);
            *self.lists.entry(sequence).or_default() += 1;
        }
    }
}

impl HeldChange {
    /// Adds what changes in the table.
    pub(crate) fn write(&mut self, batch: &mut OwnedWriteBatch, tables: &Tables) {
        let shared = std::mem::take(&mut self.shared);
        if !shared.is_empty() {
            batch.insert(
                &tables.held,
                BlockName { sequence: self.sequence, number: SHARED }.to_key(),
                shared,
            );
        }
        for (name, block) in self.own.drain(..) {
            batch.insert(&tables.held, name.to_key(), block);
        }
        let ended = std::mem::take(&mut self.ended);
        if !ended.is_empty() {
            batch.insert(&tables.held, list_name(self.sequence).to_key(), ended);
        }
        for name in self.dead.drain(..) {
            batch.remove(&tables.held, name.to_key());
        }
    }
}

impl LeaseEnds {
    pub(crate) fn apply(&self, change: HeldChange) {
        let mut leases = self.lock();
        for (end, id) in change.removed {
            leases.ends.remove(&end);
            leases.by_id.remove(id.as_bytes());
        }
        for (end, id, location) in change.added {
            leases.add(end, id, location);
        }
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
            .ends
            .range((after, Bound::Unbounded))
            .take_while(|((due_us, _), _)| *due_us <= until_us)
            .take(limit)
            .map(|(end, id)| (*end, id.clone()))
            .collect()
    }

    /// Where the row of this id is, if it is held. One whose group is being written may be either.
    pub(crate) fn location(&self, id: &Id) -> Option<Location> {
        self.lock().by_id.get(id.as_bytes()).copied()
    }

    /// The first held ids from `start` on whose bytes begin with `prefix`, in the order of their bytes.
    pub(crate) fn ids(&self, start: Bound<&[u8]>, prefix: &[u8], limit: usize) -> Vec<Id> {
        self.lock()
            .by_id
            .range::<[u8], _>((start, Bound::Unbounded))
            .map(|(ByBytes(id), _)| id)
            .take_while(|id| id.as_bytes().starts_with(prefix))
            .take(limit)
            .cloned()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leases {
    fn add(&mut self, end: (u64, u64), id: Id, location: Location) {
        self.by_id.insert(ByBytes(id.clone()), location);
        self.ends.insert(end, id);
    }
}

fn list_name(sequence: u64) -> BlockName {
    BlockName { sequence, number: ENDED }
}

#[cfg(test)]
#[path = "held_rows_test.rs"]
mod tests;
