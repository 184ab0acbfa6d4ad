//! Sweeping: what is due is removed, becomes a tombstone, or is written down as unknown. In bounded
//! slices, each change against the version that was seen, so it is safe beside any traffic.

use std::time::Duration;

use super::inner::{Inner, change};
use super::lead::doubted;
use crate::codec;
use crate::error::Result;
use crate::policy::OnUnknown;
use crate::receipt::{Done, Gone, Held, Receipt, Status};
use crate::store::{Cursor, Due, Scan, ScanOf, Seen, Swapped};

/// How much one sweep may do.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Records looked at in one slice.
    pub slice_records: usize,
    /// Slices in one sweep; the next sweep goes on with what is left.
    pub slices_max: usize,
    /// A lease that ended this long ago, of work that may be retried but that nobody asked for again,
    /// is forgotten.
    pub abandoned_after: Duration,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { slice_records: 256, slices_max: 64, abandoned_after: Duration::from_hours(24 * 7) }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records looked at.
    pub seen: usize,
    /// Receipts removed.
    pub removed: usize,
    /// Receipts that became tombstones.
    pub gone: usize,
    /// Receipts that became unknown.
    pub unknown: usize,
    /// Receipts that could not be read; they stay where they are.
    pub unreadable: usize,
    /// Whether it came to the end of what is due. If not, the next sweep goes on from there.
    pub finished: bool,
}

/// What is to become of a record that is due.
enum Fate {
    Remove,
    Become(Status, Option<Duration>),
    Stay,
}

pub(crate) async fn sweep(inner: &Inner, sweep: &Sweep) -> Result<Swept> {
    let mut swept = Swept::default();
    // Not from the beginning: what stays in place there may be more than one sweep can look at.
    let mut after: Option<Cursor> = inner.sweep_from.lock().take();
    for _ in 0..sweep.slices_max {
        let scan = Scan { of: ScanOf::Due, after: after.take(), limit: sweep.slice_records.max(1) };
        let page = inner.store.scan(&scan).await.inspect_err(|_| inner.counters.store_errors.one())?;
        swept.seen += page.found.len();
        let (mut becoming, mut swaps) = (Vec::new(), Vec::new());
        for (id, found) in page.found {
            let receipt = match codec::decode(&found) {
                Ok(receipt) => receipt,
                Err(error) => {
                    swept.unreadable += 1;
                    tracing::error!(?id, %error, "a receipt that is due cannot be read, it stays");
                    continue;
                }
            };
            let new = match fate(&receipt, sweep) {
                Fate::Stay => continue,
                Fate::Remove => None,
                Fate::Become(status, due_in) => Some((status, due_in)),
            };
            becoming.push(new.as_ref().map(|(status, _)| status.state()));
            swaps.push(change(&id, Seen::Version(receipt.version), new));
        }
        for (becomes, swapping) in becoming.into_iter().zip(inner.group.swap_all(swaps)) {
            // One that changed meanwhile is no longer due.
            if let Swapped::Won(_) = swapping.await.result? {
                inner.counters.swept.one();
                match becomes {
                    None => swept.removed += 1,
                    Some(crate::State::Unknown) => {
                        inner.counters.unknowns.one();
                        swept.unknown += 1;
                    }
                    Some(_) => swept.gone += 1,
                }
            }
        }
        after = page.next;
        if after.is_none() {
            swept.finished = true;
            break;
        }
    }
    *inner.sweep_from.lock() = after;
    Ok(swept)
}

fn fate(receipt: &Receipt, sweep: &Sweep) -> Fate {
    let Due::Over(ago) = receipt.due else { return Fate::Stay };
    match &receipt.status {
        Status::Done(Done { tombstone: Some(keep), claim, .. }) => {
            Fate::Become(Status::Gone(Gone { fence: claim.fence }), keep.duration())
        }
        Status::Done(_) | Status::Gone(_) => Fate::Remove,
        Status::Held(Held { on_unknown: OnUnknown::Hold, .. }) => {
            let unknown = doubted(receipt).expect("it is held");
            Fate::Become(unknown.status, None)
        }
        // The next ask takes it over, and meanwhile its fingerprint still guards the key.
        Status::Held(_) if ago < sweep.abandoned_after => Fate::Stay,
        Status::Held(_) => Fate::Remove,
        Status::Unknown(_) => Fate::Stay,
    }
}
