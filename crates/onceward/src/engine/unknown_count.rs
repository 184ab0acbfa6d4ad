//! Counts unknown outcomes, and gives up those that are never settled.

use std::time::Duration;

use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::open;
use super::unknown_log;
use crate::error::Result;
use crate::policy::OnUnknown;
use crate::receipt::{Held, Prior, Status};
use crate::store::{Cursor, Filter, Scan, ScanTarget, Seen, State, Swapped};
use crate::transition;

/// Records read at once.
const PAGE: usize = 1_000;

/// The receipts whose effect may or may not have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownCount {
    /// Unknown outcomes, those of ended leases included that were not asked for since.
    pub unknown: usize,
    /// Dead intents of which one try may have taken effect, and that must not be tried again before they are settled.
    pub dead: usize,
    /// How long ago the oldest of them was created.
    pub oldest: Option<Duration>,
    /// Whether all were counted. If not, there are at least this many.
    pub complete: bool,
}

/// Counts unknown outcomes, reading at most this many records.
pub(crate) async fn count(inner: &Inner, records_max: usize) -> Result<UnknownCount> {
    let mut unknown = UnknownCount { complete: true, ..UnknownCount::default() };
    let mut left = records_max;
    for state in [State::Unknown, State::Dead, State::Held] {
        let mut after = None;
        loop {
            if left == 0 {
                unknown.complete = false;
                return Ok(unknown);
            }
            let limit = left.min(PAGE);
            let filter = Filter::default().with_state(state);
            let scan = Scan::new(ScanTarget::Matching(filter), limit).with_after(after.take());
            let page = inner.scan(&scan).await?;
            left -= (page.found.len() + page.unreadable.len()).clamp(1, left);
            for (_, found) in &page.found {
                let count = match (state, open(found).map(|receipt| receipt.status)) {
                    (State::Unknown, _) => &mut unknown.unknown,
                    (_, Ok(Status::Dead(dead)))
                        if dead.prior == Prior::Unknown && dead.on_unknown == OnUnknown::Hold =>
                    {
                        &mut unknown.dead
                    }
                    (_, Ok(Status::Held(Held { on_unknown: OnUnknown::Hold, .. })))
                        if found.due.is_over() =>
                    {
                        &mut unknown.unknown
                    }
                    _ => continue,
                };
                *count += 1;
                unknown.oldest = unknown.oldest.max(Some(found.age.created));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(unknown)
}

/// Gives up unknown outcomes that were not settled for `after`: they become dead, and are still not run again. Reads
/// one slice of records, and returns how many it gave up and where to continue.
pub(crate) async fn give_up_unknown(
    inner: &Inner,
    after: Duration,
    from: Option<Cursor>,
    slice_records: usize,
) -> Result<(usize, Option<Cursor>)> {
    let filter = Filter::default().with_state(State::Unknown);
    let scan = Scan::new(ScanTarget::Matching(filter), slice_records.max(1)).with_after(from);
    let page = inner.scan(&scan).await?;
    let mut given_up = 0;
    for (id, found) in &page.found {
        let Ok(receipt) = open(found) else { continue };
        let Some(write) = transition::give_up_unknown(&receipt, after) else { continue };
        let swapped = inner.swap(id, Seen::Version(receipt.version), Some(&write), Urgency::Required).await;
        if let Swapped::Won(_) = swapped.result? {
            given_up += 1;
            inner.counters.buried.one();
            unknown_log::given_up(id, &write.status);
        }
    }
    Ok((given_up, page.next))
}
