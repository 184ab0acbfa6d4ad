//! The rows that are held, and when their leases end.
//!
//! A claim is followed by a completion within moments, so leases are not put into the due index on
//! disk and taken out again. This process keeps them in memory. For the next process, every held id
//! also lies in a numbered place of the table `held`: a claim writes its id into a free place, a
//! completion only frees the place in memory, and the next claim writes over it. Whoever opens the
//! folder looks at the few places there are and knows every row that may have lost its owner.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use onceward::{Error, ErrorKind, Id, Result, State};

use super::row::{NEVER_US, Opened, Row};
use super::tables::{Tables, cannot_read};

/// All held rows, by id. Belongs to the writer.
#[derive(Default)]
pub(crate) struct Held {
    by_id: HashMap<Id, Lease>,
    free: Vec<u32>,
    places: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    place: u32,
    pub(crate) version: u64,
    /// When it ends; for one that lost its owner, at the latest when the folder was opened.
    due_us: u64,
}

/// What one group does to the held rows: prepared before its sync, in force after it.
#[derive(Default)]
pub(crate) struct HeldChange {
    gone: Vec<(u64, Id)>,
    come: Vec<(u64, Id)>,
}

/// The ends of leases in order. Shared with the thread that scans.
#[derive(Default)]
pub(crate) struct LeaseEnds(Mutex<BTreeSet<(u64, Id)>>);

impl Held {
    /// Looks at every place that was ever used: as many as rows were held at once.
    pub(crate) fn read(tables: &Tables, opened: Opened) -> Result<(Self, LeaseEnds)> {
        let mut held = Self::default();
        let mut ends = BTreeSet::new();
        for entry in tables.held.iter() {
            let (place, id) = entry.into_inner().map_err(cannot_read)?;
            let place = place.as_ref().try_into().map(u32::from_be_bytes).map_err(|_| {
                Error::new(
                    ErrorKind::Damaged,
                    "the table of held ids is damaged; restore the folder from a copy",
                )
            })?;
            let id = Id::from_bytes(&id)?;
            held.places = held.places.max(place.saturating_add(1));
            match tables.row(&id)? {
                // An id may still stand in a place that it left earlier.
                Some(row) if row.state == State::Held && !held.by_id.contains_key(&id) => {
                    let due_us = row.effective_due_us(opened);
                    ends.insert((due_us, id.clone()));
                    held.by_id.insert(id, Lease { place, version: row.version, due_us });
                }
                _ => held.free.push(place),
            }
        }
        Ok((held, LeaseEnds(Mutex::new(ends))))
    }

    pub(crate) fn lease(&self, id: &Id) -> Option<Lease> {
        self.by_id.get(id).copied()
    }

    /// Takes over what became of a row. Returns the place to write the id into, if it is newly held.
    pub(crate) fn set(&mut self, id: &Id, row: Option<&Row>, change: &mut HeldChange) -> Option<u32> {
        let Some(row) = row.filter(|row| row.state == State::Held) else {
            if let Some(lease) = self.by_id.remove(id) {
                self.free.push(lease.place);
                change.gone.push((lease.due_us, id.clone()));
            }
            return None;
        };
        let (version, due_us) = (row.version, row.due_us);
        change.come.push((due_us, id.clone()));
        if let Some(lease) = self.by_id.get_mut(id) {
            change.gone.push((lease.due_us, id.clone()));
            *lease = Lease { place: lease.place, version, due_us };
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.by_id.insert(id.clone(), Lease { place, version, due_us });
        Some(place)
    }
}

impl LeaseEnds {
    pub(crate) fn apply(&self, change: HeldChange) {
        let mut ends = self.lock();
        for gone in change.gone {
            ends.remove(&gone);
        }
        ends.extend(change.come.into_iter().filter(|&(due_us, _)| due_us != NEVER_US));
    }

    /// The first leases behind `after` that end no later than `until_us`.
    pub(crate) fn first(&self, after: Option<&(u64, Id)>, until_us: u64, limit: usize) -> Vec<(u64, Id)> {
        let after = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.lock()
            .range((after, std::ops::Bound::Unbounded))
            .take_while(|(due_us, _)| *due_us <= until_us)
            .take(limit)
            .cloned()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(u64, Id)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
