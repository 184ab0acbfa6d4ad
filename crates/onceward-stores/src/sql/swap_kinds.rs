//! Sorts a batch and splits it by kind of swap. Each kind becomes one statement.

use onceward::{Id, Record, Seen, Swap, Version};

use super::FREE_GRACE;
use super::row::{micros, seen};

/// The swaps of a batch, by kind; each is an index in the batch, in the order of the ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SwapKinds {
    /// Creates a record where there is none.
    pub(super) create: Vec<usize>,
    /// Replaces a record.
    pub(super) replace: Vec<usize>,
    /// Removes a record and keeps its version in a free row.
    pub(super) free: Vec<usize>,
    /// Removes a record so old that the clock alone gives a higher version.
    pub(super) delete: Vec<usize>,
    /// Only checks that there is no record.
    pub(super) check: Vec<usize>,
}

impl SwapKinds {
    /// Splits the swaps of a batch at the indexes `of`. `clock` is a version that the database has given out, so
    /// its clock has reached that time.
    pub(super) fn new(batch: &[Swap], of: impl IntoIterator<Item = usize>, clock: Version) -> Self {
        let young_us = seen(clock).saturating_sub(micros(FREE_GRACE));
        let mut kinds = Self::default();
        let mut indexes: Vec<usize> = of.into_iter().collect();
        indexes.sort_unstable_by(|one, other| order(&batch[*one].id).cmp(&order(&batch[*other].id)));
        for index in indexes {
            let kind = match (batch[index].seen, &batch[index].new) {
                (Seen::Absent, Some(_)) => &mut kinds.create,
                (Seen::Version(_), Some(_)) => &mut kinds.replace,
                (Seen::Version(version), None) if seen(version) < young_us => &mut kinds.delete,
                (Seen::Version(_), None) => &mut kinds.free,
                (Seen::Absent, None) => &mut kinds.check,
            };
            kind.push(index);
        }
        kinds
    }
}

/// The id as columns, which compare byte by byte.
pub(super) fn columns(id: &Id) -> (&str, &str, &str) {
    (id.scope(), id.operation(), id.key())
}

/// The id in the order of the primary key: the operations of one key in a scope are adjacent, and so are an
/// intent and its steps.
fn order(id: &Id) -> (&str, &str, &str) {
    (id.scope(), id.key(), id.operation())
}

/// The new record of a swap that is known to write.
pub(super) fn record(swap: &Swap) -> &Record {
    swap.new.as_ref().expect("only swaps that write are of this kind")
}

/// The version seen by a swap that is known to have seen one.
pub(super) fn seen_by(swap: &Swap) -> i64 {
    match swap.seen {
        Seen::Version(version) => seen(version),
        Seen::Absent => unreachable!("only swaps that saw a version are of this kind"),
    }
}

#[cfg(test)]
#[path = "swap_kinds_test.rs"]
mod tests;
