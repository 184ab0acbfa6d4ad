//! One group of writes: the swaps of all batches that waited together, decided against the rows as
//! they are and against each other.
//!
//! It decides in memory and writes nothing. Each id is read once, before anything of its batch is
//! decided, so that a failed read leaves the group as it was.

use std::time::Duration;

use hashbrown::HashMap;
use onceward::{Found, Id, Record, Result, Seen, Swap, Swapped, Version};

use super::Shared;
use super::held::{Held, Lease};
use super::row::{NEVER_US, Row};

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
    now: Current,
    pub(crate) changed: bool,
}

enum Current {
    Row(Option<Row>),
    /// Held under exactly the version the batch has seen: its row need not be read to be replaced.
    Unread(Lease),
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

    /// Decides the swaps of one batch. An error leaves the group as it was.
    pub(crate) fn decide(&mut self, batch: &[Swap]) -> Result<Decided> {
        let places: Vec<usize> = batch.iter().map(|swap| self.place(swap)).collect::<Result<_>>()?;
        let mut decided = Decided { swapped: Vec::with_capacity(batch.len()), holds_anyway: true };
        for (swap, place) in batch.iter().zip(places) {
            let swapped = self.swap(swap, place);
            decided.holds_anyway &= !self.places[place].changed;
            decided.swapped.push(swapped);
        }
        Ok(decided)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changed == 0
    }

    /// What the group changes, and the highest version it gave.
    pub(crate) fn into_changes(self) -> (Vec<Place>, u64) {
        (self.places, self.version_max)
    }

    fn place(&mut self, swap: &Swap) -> Result<usize> {
        if let Some(&place) = self.by_id.as_ref().and_then(|by_id| by_id.get(&swap.id)) {
            // A batch that failed before it was decided may have left it unread.
            if matches!(&self.places[place].now, Current::Unread(lease) if !has_seen(swap, lease)) {
                self.places[place].now = Current::Row(self.shared.tables.row(&swap.id)?);
            }
            return Ok(place);
        }
        self.shared.refuse_doubtful(&swap.id)?;
        let now = match self.held.lease(&swap.id) {
            Some(lease) if has_seen(swap, &lease) => Current::Unread(lease),
            _ => Current::Row(self.shared.tables.row(&swap.id)?),
        };
        self.places.push(Place { id: swap.id.clone(), now, changed: false });
        let place = self.places.len() - 1;
        if let Some(by_id) = &mut self.by_id {
            by_id.insert(swap.id.clone(), place);
        }
        Ok(place)
    }

    fn swap(&mut self, swap: &Swap, place: usize) -> Swapped {
        let there = match &self.places[place].now {
            Current::Row(row) => row.as_ref().map(|row| row.version),
            Current::Unread(lease) => Some(lease.version),
        };
        let as_seen = match swap.seen {
            Seen::Absent => there.is_none(),
            Seen::Version(version) => there == Some(version.0),
        };
        if !as_seen {
            return Swapped::Lost(self.found(place));
        }
        self.version_max = self.now_us.max(self.version_max + 1);
        let version = self.version_max;
        let row = swap.new.as_ref().map(|record| new_row(record, version, self.now_us));
        let place = &mut self.places[place];
        place.now = Current::Row(row);
        if !place.changed {
            place.changed = true;
            self.changed += 1;
        }
        Swapped::Won(Version(version))
    }

    fn found(&self, place: usize) -> Option<Found> {
        match &self.places[place].now {
            Current::Row(row) => row.as_ref().map(|row| row.found(self.now_us, self.shared.opened)),
            Current::Unread(_) => unreachable!("left unread only for the swap that replaces it"),
        }
    }
}

impl Place {
    /// What the group leaves there.
    pub(crate) fn row(&self) -> Option<&Row> {
        match &self.now {
            Current::Row(row) => row.as_ref(),
            Current::Unread(_) => None,
        }
    }
}

fn has_seen(swap: &Swap, lease: &Lease) -> bool {
    swap.seen == Seen::Version(Version(lease.version))
}

fn new_row(record: &Record, version: u64, now_us: u64) -> Row {
    let due_us = record.due_in.map_or(NEVER_US, |due_in| due_at(now_us, due_in));
    Row { version, state: record.state, due_us, bytes: record.bytes.clone() }
}

/// A due time so far away that it does not fit is the last one that does.
fn due_at(now_us: u64, due_in: Duration) -> u64 {
    let due_in_us = u64::try_from(due_in.as_micros()).unwrap_or(u64::MAX);
    now_us.saturating_add(due_in_us).min(NEVER_US - 1)
}
