//! The sweep: what is due is removed, becomes a tombstone, or is written down as unknown. In bounded
//! slices, each change against the version that was seen, so it is safe beside any traffic.

use std::time::Duration;

use super::inner::Inner;
use super::sealed::{open, seal};
use super::unknown_count;
use super::unknown_log;
use crate::error::Result;
use crate::id::Id;
use crate::receipt::Status;
use crate::store::{Cursor, Found, Page, Scan, ScanTarget, Seen, State, Swapped, Version};
use crate::transition::{self, Expiry};

/// How much one sweep may do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// Records looked at in one slice.
    pub slice_records: usize,
    /// Slices in one sweep; the next sweep goes on with what is left.
    pub slices_max: usize,
    /// A lease that ended this long ago, of work that may be retried but that nobody asked for again,
    /// is forgotten.
    pub abandoned_after: Duration,
    /// An unknown outcome that nobody has settled for this long becomes dead. It is still unknown, and is not retried before it is settled. `None` for never.
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

/// What a sweep did.
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
    /// Unknown outcomes that nobody settled in time, and that are dead now.
    pub given_up: usize,
    /// Receipts that could not be read; they stay where they are.
    pub unreadable: usize,
    /// Whether it came to the end of what is due. If not, the next sweep goes on from there.
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

/// Unknown outcomes are never due, so they are read for themselves. The next sweep goes on where this one ends.
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
                expiry => due.push((id, receipt.version, expiry)),
            },
            Err(error) => {
                swept.unreadable += 1;
                tracing::error!(?id, %error, "a receipt that is due cannot be read, it stays");
            }
        }
    }
    let due = without_living_parents(inner, due).await?;
    let (mut becoming, mut swaps) = (Vec::new(), Vec::new());
    for (id, version, expiry) in &due {
        let write = match expiry {
            Expiry::Become(write) => Some(write),
            _ => None,
        };
        becoming.push(write.map(|write| (id, &write.status)));
        swaps.push(seal(id, Seen::Version(*version), write));
    }
    for (becomes, swapping) in becoming.into_iter().zip(inner.group_commit.swap_all(swaps)) {
        match swapping.await.result? {
            Swapped::Won(_) => {
                inner.counters.swept.one();
                match becomes {
                    None => swept.removed += 1,
                    Some((id, status @ Status::Unknown(_))) => {
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
                tracing::error!(%error, "a receipt that is due cannot be changed, it stays");
            }
        }
    }
    Ok(())
}

type DueOnes = Vec<(Id, Version, Expiry)>;

/// Leaves out the steps whose parents are still there: they are kept at least as long.
async fn without_living_parents(inner: &Inner, mut due: DueOnes) -> Result<DueOnes> {
    let mut parents: Vec<Id> = due
        .iter()
        .filter(|(_, _, expiry)| *expiry == Expiry::RemoveWithParent)
        .filter_map(|(id, _, _)| id.parent())
        .collect();
    parents.sort();
    parents.dedup();
    if parents.is_empty() {
        return Ok(due);
    }
    let loaded = inner.load_all(&parents).await?;
    let alive: Vec<Id> = parents
        .into_iter()
        .zip(loaded)
        // One that cannot be read is there.
        .filter(|(_, found)| !matches!(found, Ok(None | Some(Found { state: State::Gone, .. }))))
        .map(|(id, _)| id)
        .collect();
    due.retain(|(id, _, expiry)| {
        *expiry != Expiry::RemoveWithParent || id.parent().is_none_or(|parent| !alive.contains(&parent))
    });
    Ok(due)
}
