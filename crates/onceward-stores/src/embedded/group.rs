//! Decides one group of writes: the swaps of all waiting batches, against the stored rows and each other.
//!
//! It works in memory and writes nothing. A row that cannot be read fails only its own swap.

use hashbrown::HashMap;
use onceward::{Error, ErrorKind, Id, Result, Seen, State, Swap, Swapped, Version};

use super::held_rows::HeldRows;
use super::row::Row;
use super::tables::missing_claim;
use super::{EmbeddedInner, RECEIPT_BYTES_MAX, receipt_bytes};
use crate::kit;

pub(crate) struct Group<'a> {
    shared: &'a EmbeddedInner,
    held: &'a HeldRows,
    now_us: u64,
    version_max: u64,
    entries: Vec<GroupEntry>,
    /// Only kept when several batches may name the same id; within one batch none can.
    by_id: Option<HashMap<Id, usize>>,
    changed: usize,
}

/// One id in the group, with its row as the swaps decided so far leave it.
pub(crate) struct GroupEntry {
    pub(crate) id: Id,
    pub(crate) row: Option<Row>,
    pub(crate) changed: bool,
    pub(crate) before: IndexedBefore,
}

/// What the indexes hold about a row before the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexedBefore {
    pub(crate) exists: bool,
    /// The state under which the row is in the index of states.
    pub(crate) indexed_state: Option<State>,
}

/// The answers to a batch, provided that the group can be written.
pub(crate) struct BatchDecision {
    pub(crate) swapped: Vec<Swapped>,
    /// The answers are valid even if the group cannot be written.
    pub(crate) holds_without_write: bool,
}

impl<'a> Group<'a> {
    pub(crate) fn new(
        shared: &'a EmbeddedInner,
        held: &'a HeldRows,
        version_max: u64,
        batches: usize,
    ) -> Self {
        let by_id = (batches > 1).then(HashMap::new);
        let now_us = shared.now_us();
        Self { shared, held, now_us, version_max, entries: Vec::new(), by_id, changed: 0 }
    }

    /// Decides the swaps of one batch.
    pub(crate) fn decide(&mut self, batch: &[Swap]) -> BatchDecision {
        let mut decided =
            BatchDecision { swapped: Vec::with_capacity(batch.len()), holds_without_write: true };
        for swap in batch {
            let swapped = match self.find_or_load(swap) {
                Ok(at) => {
                    let swapped = self.swap(swap, at);
                    decided.holds_without_write &= !self.entries[at].changed;
                    swapped
                }
                Err(error) => Swapped::Failed(error),
            };
            decided.swapped.push(swapped);
        }
        decided
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changed == 0
    }

    /// The entries of the group, and the highest version it gave.
    pub(crate) fn into_changes(self) -> (Vec<GroupEntry>, u64) {
        (self.entries, self.version_max)
    }

    fn find_or_load(&mut self, swap: &Swap) -> Result<usize> {
        if receipt_bytes(swap) > RECEIPT_BYTES_MAX {
            let detail = format!("a receipt of more than {RECEIPT_BYTES_MAX} bytes cannot be kept");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        if let Some(&at) = self.by_id.as_ref().and_then(|by_id| by_id.get(&swap.id)) {
            return Ok(at);
        }
        self.shared.refuse_unknown(&swap.id)?;
        let (row, before) = match self.held.lease(&swap.id) {
            // Held under exactly the version that was seen: it need not be read to be replaced.
            Some(lease) if lease.is_readable && swap.seen == Seen::Version(Version(lease.version)) => {
                (Some(lease.row()), IndexedBefore { exists: true, indexed_state: None })
            }
            lease => {
                let tables = &self.shared.tables;
                let row = match lease {
                    Some(lease) => {
                        let row = tables.held_row(&swap.id, lease.location)?;
                        Some(row.ok_or_else(|| missing_claim(&swap.id))?)
                    }
                    None => tables.row_unless_held(&swap.id)?,
                };
                let indexed_state = row.as_ref().and_then(Row::indexed_state);
                let exists = row.is_some();
                (row, IndexedBefore { exists, indexed_state })
            }
        };
        self.entries.push(GroupEntry { id: swap.id.clone(), row, changed: false, before });
        let at = self.entries.len() - 1;
        if let Some(by_id) = &mut self.by_id {
            by_id.insert(swap.id.clone(), at);
        }
        Ok(at)
    }

    fn swap(&mut self, swap: &Swap, at: usize) -> Swapped {
        let entry = &mut self.entries[at];
        let there = entry.row.as_ref();
        if !kit::is_as_seen(swap.seen, there.map(|row| row.version)) {
            return Swapped::Lost(there.map(|row| row.found(self.now_us, self.shared.opened())));
        }
        self.version_max = kit::next_version(self.version_max, self.now_us);
        let (version, created) = (self.version_max, there.map(|row| row.created));
        entry.row = swap.new.as_ref().map(|record| Row::new(record, version, created, self.now_us));
        if !entry.changed {
            entry.changed = true;
            self.changed += 1;
        }
        Swapped::Won(Version(version))
    }
}
