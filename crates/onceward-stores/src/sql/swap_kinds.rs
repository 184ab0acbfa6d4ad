//! A batch, sorted and split by what has to be done. Each kind becomes one statement.

use onceward::{Id, Record, Seen, Swap, Version};

use super::FREE_GRACE;
use super::row::{micros, seen};

/// The swaps of a batch, by kind; each is an index in the batch, in the order of the ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SwapKinds {
    /// A record where nothing is.
    pub(super) create: Vec<usize>,
    /// A record that replaces another.
    pub(super) replace: Vec<usize>,
    /// A removal that leaves the version behind.
    pub(super) free: Vec<usize>,
    /// A removal of a record so old that the clock is past everything it could be taken for.
    pub(super) delete: Vec<usize>,
    /// Nothing where nothing is: only a look.
    pub(super) check: Vec<usize>,
}

impl SwapKinds {
    /// Splits the swaps of a batch at the indexes `of`. `clock` is a version that the database has given out: its clock
    /// has been there.
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

/// The id in the order of the primary key: what one scope uses one key for comes together, and so do an
/// intent and its steps.
fn order(id: &Id) -> (&str, &str, &str) {
    (id.scope(), id.key(), id.operation())
}

/// What a swap that is known to write puts there.
pub(super) fn record(swap: &Swap) -> &Record {
    swap.new.as_ref().expect("only swaps that write are of this kind")
}

/// What a swap that is known to have seen something has seen.
pub(super) fn seen_by(swap: &Swap) -> i64 {
    match swap.seen {
        Seen::Version(version) => seen(version),
        Seen::Absent => unreachable!("only swaps that saw a version are of this kind"),
    }
}

#[cfg(test)]
#[path = "swap_kinds_test.rs"]
mod tests;
