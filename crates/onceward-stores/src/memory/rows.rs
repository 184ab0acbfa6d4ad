//! The rows of the memory store and their indexes.
//!
//! ```text
//! by_id    hash of the id ──▶ slot     every row
//! due      due time, slot              what falls due: one list each for waiting, held, and the rest
//! live     bits by slot                one set each for waiting, held, unknown, dead
//! steps    id of the parent ──▶ slots  steps only
//! ```

mod scan;

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::num::NonZeroU64;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use onceward::{Age, Due, Found, Id, Record, State, Swap, Swapped, Version};

use super::bit_set::BitSet;
use super::due_queue::DueQueue;
use super::transactions::CurrentRow;
use crate::kit;

/// Rows in one block. Blocks do not move, so a store that grows copies nothing; and an empty one is small.
const BLOCK_ROWS: usize = 256;

/// The list of due times that a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueList {
    Waiting,
    Held,
    Rest,
}

const DUE_LISTS: [DueList; 3] = [DueList::Waiting, DueList::Held, DueList::Rest];

/// Rows are in numbered slots, so that a scan can resume without keeping the ids sorted.
#[derive(Default)]
pub(crate) struct Rows {
    blocks: Vec<Vec<Option<Row>>>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
    /// Each slot with the hash of its id, so that growing does not hash the ids again.
    by_id: HashTable<(u64, u32)>,
    /// Due time and slot. A row has at most one entry, at or before the time when it falls due. The entry
    /// is in the list of the row's state, with one exception: a completion leaves the entry of its lease as it
    /// is, and the next scan that reads the entry moves it. That halves the cost of a claim and its completion.
    due: [DueQueue; DUE_LISTS.len()],
    /// The rows of the states that people and workers look for, by `live_of`.
    live: [BitSet; 4],
    /// The slots of the steps of each intent that has some.
    steps: HashMap<Id, BTreeSet<u32>>,
    /// The highest version ever given to any id, so that nothing need be kept for removed ids.
    version_max: u64,
}

/// One per receipt, so each byte counts: `NonZeroU64` keeps the optional times at eight bytes.
struct Row {
    id: Id,
    bytes: Bytes,
    version: u64,
    /// The version of its first write: both come from the clock.
    created_us: u64,
    due_us: Option<NonZeroU64>,
    /// The time of its entry in `due`.
    listed_us: Option<NonZeroU64>,
    listed_in: DueList,
    state: State,
}

impl Rows {
    /// Writes if the record is still as the writer has seen it.
    pub(crate) fn swap(&mut self, swap: &Swap, now_us: u64) -> Swapped {
        let hash = self.hasher.hash_one(&swap.id);
        let slot = self.slot(&swap.id, hash);
        let row = slot.map(|slot| self.at(slot));
        if !kit::is_as_seen(swap.seen, row.map(|row| row.version)) {
            return Swapped::Lost(row.map(|row| row.found(now_us)));
        }
        let version = self.next_version(now_us);
        self.put(slot, hash, &swap.id, swap.new.as_ref(), WriteStamp { version, now_us });
        Swapped::Won(Version(version))
    }

    /// Returns a version above all others.
    pub(crate) fn next_version(&mut self, now_us: u64) -> u64 {
        self.version_max = kit::next_version(self.version_max, now_us);
        self.version_max
    }

    /// The version and the creation time of a record.
    pub(crate) fn there(&self, id: &Id) -> Option<CurrentRow> {
        let slot = self.slot(id, self.hasher.hash_one(id))?;
        let &Row { version, created_us: created, .. } = self.at(slot);
        Some(CurrentRow { version, created })
    }

    /// Applies a write of a transaction. Its versions were given out when it wrote.
    pub(crate) fn put_written(
        &mut self,
        id: &Id,
        record: Option<&Record>,
        version: u64,
        created: u64,
        at_us: u64,
    ) {
        let hash = self.hasher.hash_one(id);
        let slot = self.slot(id, hash);
        self.put(slot, hash, id, record, WriteStamp { version, now_us: at_us });
        if let Some(slot) = self.slot(id, hash) {
            self.at_mut(slot).created_us = created;
        }
    }

    pub(crate) fn found(&self, id: &Id, now_us: u64) -> Option<Found> {
        self.slot(id, self.hasher.hash_one(id)).map(|slot| self.at(slot).found(now_us))
    }

    fn put(&mut self, slot: Option<u32>, hash: u64, id: &Id, record: Option<&Record>, stamp: WriteStamp) {
        match (record, slot) {
            (Some(record), Some(slot)) => self.rewrite(slot, record, stamp),
            (Some(record), None) => self.add(id.clone(), hash, record, stamp),
            (None, Some(slot)) => self.remove(slot, hash),
            (None, None) => {}
        }
    }

    fn rewrite(&mut self, slot: u32, record: &Record, stamp: WriteStamp) {
        let row = self.at_mut(slot);
        row.version = stamp.version;
        row.due_us = due_us(record, stamp.now_us);
        row.bytes.clone_from(&record.bytes);
        let before = std::mem::replace(&mut row.state, record.state);
        let may_stay = match (row.listed_us, row.due_us) {
            (None, None) => true,
            (Some(listed_us), Some(due_us)) => {
                let in_list = row.listed_in == list_of(row.state)
                    || (row.listed_in, list_of(row.state)) == (DueList::Held, DueList::Rest);
                in_list && listed_us <= due_us
            }
            // A row that is never due may keep the entry of its lease until a scan reads it.
            (Some(_), None) => row.listed_in == DueList::Held && list_of(row.state) == DueList::Rest,
            (None, Some(_)) => false,
        };
        if !may_stay {
            self.list(slot);
        }
        if before != record.state {
            self.set_live(slot, Some(before), Some(record.state));
        }
    }

    /// Moves a row to its correct entry in `due`.
    fn list(&mut self, slot: u32) {
        let row = self.at_mut(slot);
        let due_us = row.due_us;
        let listed_in = std::mem::replace(&mut row.listed_in, list_of(row.state));
        let list = row.listed_in;
        if let Some(listed_us) = std::mem::replace(&mut row.listed_us, due_us) {
            self.due[listed_in as usize].remove((listed_us, slot));
        }
        if let Some(due_us) = due_us {
            self.due[list as usize].insert((due_us, slot));
        }
    }

    fn set_live(&mut self, slot: u32, before: Option<State>, after: Option<State>) {
        if let Some(live) = before.and_then(live_of) {
            self.live[live].remove(slot);
        }
        if let Some(live) = after.and_then(live_of) {
            self.live[live].insert(slot);
        }
    }

    fn add(&mut self, id: Id, hash: u64, record: &Record, stamp: WriteStamp) {
        let due_us = due_us(record, stamp.now_us);
        let parent = id.parent();
        let row = Row {
            id,
            bytes: record.bytes.clone(),
            version: stamp.version,
            created_us: stamp.version,
            due_us,
            listed_us: due_us,
            listed_in: list_of(record.state),
            state: record.state,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                *self.slot_mut(slot) = Some(row);
                slot
            }
            None => self.push(row),
        };
        self.by_id.insert_unique(hash, (hash, slot), |&(hash, _)| hash);
        if let Some(due_us) = due_us {
            self.due[list_of(record.state) as usize].insert((due_us, slot));
        }
        self.set_live(slot, None, Some(record.state));
        if let Some(parent) = parent {
            self.steps.entry(parent).or_default().insert(slot);
        }
    }

    /// Puts a row into a new slot.
    fn push(&mut self, row: Row) -> u32 {
        let slot = u32::try_from(self.slots()).expect("memory ends long before four billion rows");
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK_ROWS) {
            self.blocks.push(Vec::with_capacity(BLOCK_ROWS));
        }
        self.blocks.last_mut().expect("pushed if there was none").push(Some(row));
        slot
    }

    /// How many slots there are, taken or free.
    fn slots(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK_ROWS + last.len())
    }

    fn remove(&mut self, slot: u32, hash: u64) {
        if let Ok(entry) = self.by_id.find_entry(hash, |&(_, other)| other == slot) {
            entry.remove();
        }
        let row = self.slot_mut(slot).take().expect("an indexed slot is taken");
        if let Some(listed_us) = row.listed_us {
            self.due[row.listed_in as usize].remove((listed_us, slot));
        }
        self.set_live(slot, Some(row.state), None);
        if let Some(parent) = row.id.parent()
            && let Some(steps) = self.steps.get_mut(&parent)
        {
            steps.remove(&slot);
            if steps.is_empty() {
                self.steps.remove(&parent);
            }
        }
        self.free.push(slot);
    }

    fn slot(&self, id: &Id, hash: u64) -> Option<u32> {
        let found = self.by_id.find(hash, |&(other, slot)| other == hash && self.at(slot).id == *id);
        found.map(|&(_, slot)| slot)
    }

    fn at(&self, slot: u32) -> &Row {
        let slot = slot as usize;
        self.blocks[slot / BLOCK_ROWS][slot % BLOCK_ROWS].as_ref().expect("an indexed slot is taken")
    }

    fn at_mut(&mut self, slot: u32) -> &mut Row {
        self.slot_mut(slot).as_mut().expect("an indexed slot is taken")
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Option<Row> {
        let slot = slot as usize;
        &mut self.blocks[slot / BLOCK_ROWS][slot % BLOCK_ROWS]
    }
}

/// The version and the time of a write.
#[derive(Clone, Copy)]
struct WriteStamp {
    version: u64,
    now_us: u64,
}

impl Row {
    fn found(&self, now_us: u64) -> Found {
        Found::new(
            Version(self.version),
            self.state,
            Due::between(now_us, self.due_us.map(NonZeroU64::get)),
            Age::between(now_us, self.created_us, self.version),
            self.bytes.clone(),
        )
    }
}

fn list_of(state: State) -> DueList {
    match state {
        State::Waiting => DueList::Waiting,
        State::Held => DueList::Held,
        State::Done | State::Unknown | State::Dead | State::Gone => DueList::Rest,
    }
}

fn live_of(state: State) -> Option<usize> {
    match state {
        State::Waiting => Some(0),
        State::Held => Some(1),
        State::Unknown => Some(2),
        State::Dead => Some(3),
        State::Done | State::Gone => None,
    }
}

/// Zero means "not listed", and the first microsecond of 1970 is as good as the second.
fn due_us(record: &Record, now_us: u64) -> Option<NonZeroU64> {
    let due_us = kit::due_us(now_us, record.due_in)?;
    Some(NonZeroU64::new(due_us).unwrap_or(NonZeroU64::MIN))
}
