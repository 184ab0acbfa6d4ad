//! Helpers that all stores share: clocks and due times, version checks, cursors, filters, change signals.
//!
//! A store decides where its records are and how they are written. Nothing here depends on a particular store.

pub(crate) mod cursor;
#[cfg(any(feature = "dynamodb", feature = "etcd"))]
pub(crate) mod dated_clock;
pub(crate) mod groups;
#[cfg(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod migrated;
pub(crate) mod percent;
pub(crate) mod signals;
#[cfg(any(feature = "etcd", feature = "redis"))]
pub(crate) mod state_letters;
pub(crate) mod steady_clock;

use std::time::Duration;

use onceward::{Clock, Filter, Id, Result, Scan, Seen, TextMatch};

/// Later times are treated as this one: versions start from the clock and must be able to grow from
/// any time that it has shown.
const NOW_US_MAX: u64 = 1 << 62;
/// One page of a scan reads at most this many records, whatever its limit says.
pub(crate) const SCAN_RECORDS_MAX: usize = 10_000;

/// The clock's time in microseconds, within bounds.
pub(crate) fn now_us(clock: &dyn Clock) -> u64 {
    clock.now_us().min(NOW_US_MAX)
}

/// When a record that is written now falls due. A time too far away to fit is the last one that does.
pub(crate) fn due_us(now_us: u64, due_in: Option<Duration>) -> Option<u64> {
    let due_in_us = u64::try_from(due_in?.as_micros()).unwrap_or(u64::MAX);
    Some(now_us.saturating_add(due_in_us))
}

/// Whether a record is as the writer has seen it; `there` is its current version, if it exists.
pub(crate) fn is_as_seen(seen: Seen, there: Option<u64>) -> bool {
    match seen {
        Seen::Absent => there.is_none(),
        Seen::Version(version) => there == Some(version.0),
    }
}

/// The version of the next write. Higher than every version given before to any id, so that
/// nothing need be kept for removed ids.
pub(crate) fn next_version(version_max: u64, now_us: u64) -> u64 {
    now_us.max(version_max + 1)
}

/// How many records one page may look at.
pub(crate) fn scan_limit(query: &Scan) -> usize {
    query.limit.clamp(1, SCAN_RECORDS_MAX)
}

/// The one id that can match, if the filter names all its parts.
pub(crate) fn only_id(filter: &Filter) -> Option<Result<Id>> {
    match filter {
        Filter { scope: Some(scope), operation: Some(TextMatch::Is(operation)), key: Some(key), .. } => {
            Some(Id::from_columns(scope, operation, key))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "kit_test.rs"]
mod tests;

#[cfg(test)]
#[path = "shelf_test.rs"]
mod shelf_test;
