//! One group of writes: the swaps of all batches that waited together, decided against the rows as
//! they are and against each other.
//!
//! It decides in memory and writes nothing. A row that cannot be read is the failure of its own swap.

use hashbrown::HashMap;
use onceward::{Error, ErrorKind, Id, Result, Seen, State, Swap, Swapped, Version};

use super::held::Held;
use super::row::Row;
use super::{RECEIPT_BYTES_MAX, Shared, receipt_bytes};
use crate::kit;

pub(crate) struct Group<'a> {
    shared: &'a Shared,
    held: &'a Held,
    now_us: u64,
    version_max: u64,
    places: Vec<Place>,
    /// Only kept when several batches may name the same id; within one batch none can.
    by_id: Option<HashMap<Id, usize>>,
    changed: usize,
}

/// One id that the group is about: what is there at this point of it.
pub(crate) struct Place {
    pub(crate) id: Id,
    pub(crate) row: Option<Row>,
    pub(crate) changed: bool,
    pub(crate) before: Before,
}

/// What the indexes have of a row before the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) exists: bool,
    /// Under which state it is in the index of states.
    pub(crate) indexed_state: Option<State>,
}

/// What became of a batch, if the group can be kept.
pub(crate) struct Decided {
    pub(crate) swapped: Vec<Swapped>,
    /// Nothing in the answer rests on the group being written.
    pub(crate) holds_anyway: bool,
}

impl<'a> Group<'a> {
    pub(crate) fn new(shared: &'a Shared, held: &'a Held, version_max: u64, batches: usize) -> Self {
        let by_id = (batches > 1).then(HashMap::new);
        let now_us = shared.now_us();
        Self { shared, held, now_us, version_max, places: Vec::new(), by_id, changed: 0 }
    }

    /// Decides the swaps of one batch.
    pub(crate) fn decide(&mut self, batch: &[Swap]) -> Decided {
        let mut decided = Decided { swapped: Vec::with_capacity(batch.len()), holds_anyway: true };
        for swap in batch {
            let swapped = match self.place(swap) {
                Ok(at) => {
                    let swapped = self.swap(swap, at);
                    decided.holds_anyway &= !self.places[at].changed;
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

    /// What the group changes, and the highest version it gave.
    pub(crate) fn into_changes(self) -> (Vec<Place>, u64) {
        (self.places, self.version_max)
    }

    fn place(&mut self, swap: &Swap) -> Result<usize> {
        if receipt_bytes(swap) > RECEIPT_BYTES_MAX {
            let detail = format!("a receipt of more than {RECEIPT_BYTES_MAX} bytes cannot be kept");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        if let Some(&at) = self.by_id.as_ref().and_then(|by_id| by_id.get(&swap.id)) {
            return Ok(at);
        }
        self.shared.refuse_doubtful(&swap.id)?;
        let (row, before) = match self.held.lease(&swap.id) {
            // Held under exactly the version that was seen: it need not be read to be replaced.
            Some(lease) if swap.seen == Seen::Version(Version(lease.version)) => {
                (Some(lease.row()), Before { exists: true, indexed_state: None })
            }
            _ => {
                let row = self.shared.tables.row(&swap.id)?;
                let indexed_state = row.as_ref().and_then(Row::indexed_state);
                let exists = row.is_some();
                (row, Before { exists, indexed_state })
            }
        };
        self.places.push(Place { id: swap.id.clone(), row, changed: false, before });
        let at = self.places.len() - 1;
        if let Some(by_id) = &mut self.by_id {
            by_id.insert(swap.id.clone(), at);
        }
        Ok(at)
    }

    fn swap(&mut self, swap: &Swap, at: usize) -> Swapped {
        let place = &mut self.places[at];
        let there = place.row.as_ref();
        if !kit::is_as_seen(swap.seen, there.map(|row| row.version)) {
            return Swapped::Lost(there.map(|row| row.found(self.now_us, self.shared.opened)));
        }
        self.version_max = kit::next_version(self.version_max, self.now_us);
        let (version, created) = (self.version_max, there.map(|row| row.created));
        place.row = swap.new.as_ref().map(|record| Row::new(record, version, created, self.now_us));
        if !place.changed {
            place.changed = true;
            self.changed += 1;
        }
        Swapped::Won(Version(version))
    }
}
