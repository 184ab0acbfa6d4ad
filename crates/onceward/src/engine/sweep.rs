//! The sweep: what is due is removed, becomes a tombstone, or is written down as unknown. In bounded
//! slices, each change against the version that was seen, so it is safe beside any traffic.

use std::time::Duration;

use hashbrown::HashMap;

use super::inner::Inner;
use super::sealed::{open, seal};
use super::unknown_count;
use super::unknown_log;
use crate::error::Result;
use crate::id::Id;
use crate::receipt::Status;
use crate::store::{Cursor, Found, Loaded, Page, Scan, ScanTarget, Seen, State, Swapped, Version};
use crate::transition::{self, Expiry};

/// How much one sweep may do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// Records looked at in one slice.
    pub slice_records: usize,
    /// Slices in one sweep; the next sweep continues with what is left.
    pub slices_max: usize,
    /// A lease that ended this long ago, of work that may be retried but that was not asked for again,
    /// is forgotten.
    pub abandoned_after: Duration,
    /// An unknown outcome that was not settled for this long becomes dead. It is still unknown, and is not retried
    /// before it is settled. `None` for never.
    pub unknown_after: Option<Duration>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            slice_records: 256,
            slices_max: 64,
            abandoned_after: Duration::from_hours(24 * 7),
            unknown_after: None,
        }
    }
}

impl Sweep {
    /// Sets how many records are looked at in one slice.
    pub fn with_slice_records(mut self, records: usize) -> Self {
        self.slice_records = records;
        self
    }

    /// Sets how many slices are in one sweep.
    pub fn with_slices_max(mut self, slices: usize) -> Self {
        self.slices_max = slices;
        self
    }

    /// Sets how long ago a lease must have ended for abandoned work to be forgotten.
    pub fn with_abandoned_after(mut self, abandoned_after: Duration) -> Self {
        self.abandoned_after = abandoned_after;
        self
    }

    /// Sets how long an unknown outcome waits to be settled before it becomes dead; `None`, the default, for no limit.
    pub fn with_unknown_after(mut self, unknown_after: impl Into<Option<Duration>>) -> Self {
        self.unknown_after = unknown_after.into();
        self
    }
}

/// Counts of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Records looked at.
    pub seen: usize,
    /// Receipts removed.
    pub removed: usize,
    /// Receipts that became tombstones.
    pub gone: usize,
    /// Receipts that became unknown.
    pub unknown: usize,
    /// Unknown outcomes that were not settled in time, and that are dead now.
    pub given_up: usize,
    /// Receipts that could not be read; they stay where they are.
    pub unreadable: usize,
    /// Whether it came to the end of what is due. If not, the next sweep continues from there.
    pub finished: bool,
}

pub(crate) async fn sweep(inner: &Inner, sweep: &Sweep) -> Result<Swept> {
    let mut swept = Swept::default();
    // Not from the beginning: what stays in place there may be more than one sweep can look at.
    let mut after: Option<Cursor> = inner.sweep_from.lock().take();
    for _ in 0..sweep.slices_max {
        let scan = Scan::new(ScanTarget::Due(None), sweep.slice_records.max(1)).with_after(after.take());
        let page = inner.scan(&scan).await?;
        after = page.next.clone();
        sweep_page(inner, sweep, page, &mut swept).await?;
        if after.is_none() {
            swept.finished = true;
            break;
        }
    }
    *inner.sweep_from.lock() = after;
    if let Some(unknown_after) = sweep.unknown_after {
        give_up_unknown(inner, sweep, unknown_after, &mut swept).await?;
    }
    Ok(swept)
}

/// Unknown outcomes are never due, so they are read for themselves. The next sweep continues where this one ends.
async fn give_up_unknown(
    inner: &Inner,
    sweep: &Sweep,
    unknown_after: Duration,
    swept: &mut Swept,
) -> Result<()> {
    let mut from = inner.given_up_from.lock().take();
    for _ in 0..sweep.slices_max {
        let (given_up, next) =
            unknown_count::give_up_unknown(inner, unknown_after, from.take(), sweep.slice_records).await?;
        swept.given_up += given_up;
        from = next;
        if from.is_none() {
            break;
        }
    }
    *inner.given_up_from.lock() = from;
    Ok(())
}

async fn sweep_page(inner: &Inner, sweep: &Sweep, page: Page, swept: &mut Swept) -> Result<()> {
    swept.seen += page.found.len() + page.unreadable.len();
    for (id, error) in &page.unreadable {
        swept.unreadable += 1;
        tracing::error!(?id, %error, "a receipt that is due cannot be read, it stays");
    }
    let mut due = Vec::new();
    for (id, found) in page.found {
        match open(&found) {
            Ok(receipt) => match transition::expire(&id, &receipt, sweep.abandoned_after) {
                Expiry::Keep => {}
                expiry => {
                    let (version, is_done) = (receipt.version, receipt.status.state() == State::Done);
                    due.push(DueOne { id, version, is_done, expiry });
                }
            },
            Err(error) => {
                swept.unreadable += 1;
                tracing::error!(?id, %error, "a receipt that is due cannot be read, it stays");
            }
        }
    }
    let due = without_living_parents(inner, due).await?;
    let (steps, intents): (Vec<_>, Vec<_>) = due.into_iter().partition(|due| due.id.is_step());
    // Steps go first: a key that is free while steps of its previous life exist would let a new run skip them.
    let stayed = apply(inner, &steps, swept).await?;
    let goes = |due: &DueOne| !stayed.iter().any(|step| is_step_of(step, &due.id));
    let intents: Vec<DueOne> = intents.into_iter().filter(goes).collect();
    apply(inner, &intents, swept).await?;
    Ok(())
}

/// Writes what becomes of them. Returns those that could not be changed.
async fn apply(inner: &Inner, due: &[DueOne], swept: &mut Swept) -> Result<Vec<Id>> {
    let (mut becoming, mut swaps) = (Vec::new(), Vec::new());
    for DueOne { id, version, expiry, .. } in due {
        let write = match expiry {
            Expiry::Become(write) => Some(write),
            _ => None,
        };
        becoming.push((id, write.map(|write| &write.status)));
        swaps.push(seal(id, Seen::Version(*version), write));
    }
    let mut stayed = Vec::new();
    for ((id, becomes), swapping) in becoming.into_iter().zip(inner.group_commit.swap_all(swaps)) {
        match swapping.await.result? {
            Swapped::Won(_) => {
                inner.counters.swept.one();
                match becomes {
                    None => swept.removed += 1,
                    Some(status @ Status::Unknown(_)) => {
                        unknown_log::lapsed(id, status);
                        inner.counters.unknowns.one();
                        swept.unknown += 1;
                    }
                    Some(_) => swept.gone += 1,
                }
            }
            // One that changed meanwhile is no longer due.
            Swapped::Lost(_) => {}
            Swapped::Failed(error) => {
                swept.unreadable += 1;
                stayed.push(id.clone());
                tracing::error!(?id, %error, "a receipt that is due cannot be changed, it stays");
            }
        }
    }
    Ok(stayed)
}

/// What is due, and what is to become of it.
struct DueOne {
    id: Id,
    version: Version,
    is_done: bool,
    expiry: Expiry,
}

/// Whether it is a step of this intent, however deep below it.
fn is_step_of(step: &Id, intent: &Id) -> bool {
    let mut parent = step.parent();
    while let Some(id) = parent {
        if id == *intent {
            return true;
        }
        parent = id.parent();
    }
    false
}

/// Leaves out the steps whose parents are still there and honoured: they are kept at least as long.
async fn without_living_parents(inner: &Inner, mut due: Vec<DueOne>) -> Result<Vec<DueOne>> {
    let mut parents: Vec<Id> = due
        .iter()
        .filter(|due| due.expiry == Expiry::RemoveWithParent)
        .filter_map(|due| due.id.parent())
        .collect();
    parents.sort();
    parents.dedup();
    if parents.is_empty() {
        return Ok(due);
    }
    let loaded = inner.load_all(&parents).await?;
    let parents: HashMap<Id, Parent> =
        parents.into_iter().zip(loaded).map(|(id, found)| (id.clone(), Parent::of(&id, found))).collect();
    due.retain(|due| {
        let parent = due.id.parent().and_then(|parent| parents.get(&parent));
        match (&due.expiry, parent) {
            (Expiry::RemoveWithParent, Some(Parent::Lives)) => false,
            (Expiry::RemoveWithParent, Some(Parent::Expired(last))) => due.is_done && due.version < *last,
            _ => true,
        }
    });
    Ok(due)
}

/// What there is of the intent of a step.
enum Parent {
    Absent,
    /// It is past its retention: the outcomes of steps that are older than this go before it does.
    Expired(Version),
    Lives,
}

impl Parent {
    fn of(id: &Id, loaded: Loaded) -> Self {
        match loaded {
            Ok(None | Some(Found { state: State::Gone, .. })) => Self::Absent,
            // (A step counts past its retention, and with it its own steps.)
            Ok(Some(found)) if found.state == State::Done && found.due.is_over() && !id.is_step() => {
                Self::Expired(found.version)
            }
            // One that cannot be read is there.
            _ => Self::Lives,
        }
    }
}
