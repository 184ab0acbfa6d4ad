//! The rows, and the indexes that point at them.
//!
//! ```text
//! by_id    hash of the id ──▶ place     every row
//! due      due time, place              what falls due: one list each for waiting, held, and the rest
//! live     bits by place                one set each for waiting, held, unknown, dead
//! steps    id of the parent ──▶ places  steps only
//! ```

mod scan;

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::num::NonZeroU64;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use onceward::{Age, Due, Found, Id, Record, State, Swap, Swapped, Version};

use super::places::Places;
use super::transactions::There;
use crate::kit;

/// Rows in one block. Blocks do not move, so a store that grows copies nothing; and an empty one is small.
const BLOCK_ROWS: usize = 256;

/// In which list of due times a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Waiting,
    Held,
    Rest,
}

const LISTS: [List; 3] = [List::Waiting, List::Held, List::Rest];

/// Rows are in numbered places, so that a scan can go on where it stopped without an order over ids.
#[derive(Default)]
pub(crate) struct Rows {
    blocks: Vec<Vec<Option<Row>>>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
    /// Each place with the hash of its id, so that growing need not look at the ids again.
    by_id: HashTable<(u64, u32)>,
    /// Due time and place. A row has at most one entry, and it stands no later than the row falls due. It is
    /// in the list of the row's state, but for one case: a completion leaves the entry of its lease where it
    /// is, and the scan that comes upon it moves it. That halves the cost of a claim and its completion.
    due: [BTreeSet<(NonZeroU64, u32)>; LISTS.len()],
    /// The rows of the states that people and workers look for, by `live_of`.
    live: [Places; 4],
    /// The places of the steps of each intent that has some.
    steps: HashMap<Id, BTreeSet<u32>>,
    /// The highest version ever given, over all ids: removed ids need no memory of their own.
    version_max: u64,
}

/// There are as many as receipts, so each byte counts: where nothing is due, that is a zero.
struct Row {
    id: Id,
    bytes: Bytes,
    version: u64,
    /// The version of its first write: both come from the clock.
    created_us: u64,
    due_us: Option<NonZeroU64>,
    /// Where it stands in `due`.
    listed_us: Option<NonZeroU64>,
    listed_in: List,
    state: State,
}

impl Rows {
    /// Writes if the place is as seen.
    pub(crate) fn swap(&mut self, swap: &Swap, now_us: u64) -> Swapped {
        let hash = self.hasher.hash_one(&swap.id);
        let place = self.place(&swap.id, hash);
        let row = place.map(|place| self.at(place));
        if !kit::is_as_seen(swap.seen, row.map(|row| row.version)) {
            return Swapped::Lost(row.map(|row| row.found(now_us)));
        }
        let version = self.next_version(now_us);
        self.put(place, hash, &swap.id, swap.new.as_ref(), Stamp { version, now_us });
        Swapped::Won(Version(version))
    }

    /// Gives out a version above all others.
    pub(crate) fn next_version(&mut self, now_us: u64) -> u64 {
        self.version_max = kit::next_version(self.version_max, now_us);
        self.version_max
    }

    /// What is in a place, without its bytes.
    pub(crate) fn there(&self, id: &Id) -> Option<There> {
        let place = self.place(id, self.hasher.hash_one(id))?;
        let &Row { version, created_us: created, .. } = self.at(place);
        Some(There { version, created })
    }

    /// Puts what a transaction has written in place. Its versions were given out when it wrote.
    pub(crate) fn put_written(
        &mut self,
        id: &Id,
        record: Option<&Record>,
        version: u64,
        created: u64,
        at_us: u64,
    ) {
        let hash = self.hasher.hash_one(id);
        let place = self.place(id, hash);
        self.put(place, hash, id, record, Stamp { version, now_us: at_us });
        if let Some(place) = self.place(id, hash) {
            self.at_mut(place).created_us = created;
        }
    }

    pub(crate) fn found(&self, id: &Id, now_us: u64) -> Option<Found> {
        self.place(id, self.hasher.hash_one(id)).map(|place| self.at(place).found(now_us))
    }

    fn put(&mut self, place: Option<u32>, hash: u64, id: &Id, record: Option<&Record>, stamp: Stamp) {
        match (record, place) {
            (Some(record), Some(place)) => self.rewrite(place, record, stamp),
            (Some(record), None) => self.add(id.clone(), hash, record, stamp),
            (None, Some(place)) => self.remove(place, hash),
            (None, None) => {}
        }
    }

    fn rewrite(&mut self, place: u32, record: &Record, stamp: Stamp) {
        let row = self.at_mut(place);
        row.version = stamp.version;
        row.due_us = due_us(record, stamp.now_us);
        row.bytes.clone_from(&record.bytes);
        let before = std::mem::replace(&mut row.state, record.state);
        let may_stay = match (row.listed_us, row.due_us) {
            (None, None) => true,
            (Some(listed_us), Some(due_us)) => {
                let in_list = row.listed_in == list_of(row.state)
                    || (row.listed_in, list_of(row.state)) == (List::Held, List::Rest);
                in_list && listed_us <= due_us
            }
            // What is never due may stand at the end of its lease until a scan comes by.
            (Some(_), None) => row.listed_in == List::Held && list_of(row.state) == List::Rest,
            (None, Some(_)) => false,
        };
        if !may_stay {
            self.list(place);
        }
        if before != record.state {
            self.set_live(place, Some(before), Some(record.state));
        }
    }

    /// Puts a row where it belongs in `due`.
    fn list(&mut self, place: u32) {
        let row = self.at_mut(place);
        let due_us = row.due_us;
        let listed_in = std::mem::replace(&mut row.listed_in, list_of(row.state));
        let list = row.listed_in;
        if let Some(listed_us) = std::mem::replace(&mut row.listed_us, due_us) {
            self.due[listed_in as usize].remove(&(listed_us, place));
        }
        if let Some(due_us) = due_us {
            self.due[list as usize].insert((due_us, place));
        }
    }

    fn set_live(&mut self, place: u32, before: Option<State>, after: Option<State>) {
        if let Some(live) = before.and_then(live_of) {
            self.live[live].remove(place);
        }
        if let Some(live) = after.and_then(live_of) {
            self.live[live].insert(place);
        }
    }

    fn add(&mut self, id: Id, hash: u64, record: &Record, stamp: Stamp) {
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
        let place = match self.free.pop() {
            Some(place) => {
                *self.place_mut(place) = Some(row);
                place
            }
            None => self.push(row),
        };
        self.by_id.insert_unique(hash, (hash, place), |&(hash, _)| hash);
        if let Some(due_us) = due_us {
            self.due[list_of(record.state) as usize].insert((due_us, place));
        }
        self.set_live(place, None, Some(record.state));
        if let Some(parent) = parent {
            self.steps.entry(parent).or_default().insert(place);
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
            self.due[row.listed_in as usize].remove(&(listed_us, place));
        }
        self.set_live(place, Some(row.state), None);
        if let Some(parent) = row.id.parent()
            && let Some(steps) = self.steps.get_mut(&parent)
        {
            steps.remove(&place);
            if steps.is_empty() {
                self.steps.remove(&parent);
            }
        }
        self.free.push(place);
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

/// When and as what a record is written.
#[derive(Clone, Copy)]
struct Stamp {
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

fn list_of(state: State) -> List {
    match state {
        State::Waiting => List::Waiting,
        State::Held => List::Held,
        State::Done | State::Unknown | State::Dead | State::Gone => List::Rest,
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
