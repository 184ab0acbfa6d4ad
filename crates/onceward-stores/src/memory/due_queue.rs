//! Due times in order, with the slots of their rows. Most entries come in the order of their due times, because leases
//! of one length are claimed one after the other: those go to the end of a queue, which costs a fraction of an
//! insertion into a tree. The others go into a tree.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::ops::Bound;

/// A due time in microseconds, and a slot.
pub(crate) type DueEntry = (NonZeroU64, u32);

/// Removed entries that may stay in the queue, besides as many as there are others.
const REMOVED_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct DueQueue {
    /// In order, each with whether it is still there.
    queue: VecDeque<(DueEntry, bool)>,
    /// How many in the queue were removed.
    removed: usize,
    tree: BTreeSet<DueEntry>,
}

impl DueQueue {
    /// Inserts an entry that is not there.
    pub(crate) fn insert(&mut self, entry: DueEntry) {
        match self.queue.back() {
            Some((last, _)) if *last >= entry => drop(self.tree.insert(entry)),
            _ => self.queue.push_back((entry, true)),
        }
    }

    /// Removes an entry, if it is there.
    pub(crate) fn remove(&mut self, entry: DueEntry) {
        // An entry can have come back after it was removed from the queue; then it is in the tree.
        if self.tree.remove(&entry) {
            return;
        }
        let Ok(at) = self.queue.binary_search_by_key(&entry, |(entry, _)| *entry) else { return };
        if std::mem::replace(&mut self.queue[at].1, false) {
            self.removed += 1;
        }
        // What is due is removed from the front, and a scan begins there.
        while self.queue.front().is_some_and(|(_, there)| !there) {
            self.queue.pop_front();
            self.removed -= 1;
        }
        if self.removed > self.queue.len() / 2 + REMOVED_MAX {
            self.queue.retain(|(_, there)| *there);
            self.removed = 0;
        }
    }

    /// The first entry after this place.
    pub(crate) fn first_after(&self, after: Option<DueEntry>) -> Option<DueEntry> {
        let from = after.map_or(0, |after| self.queue.partition_point(|(entry, _)| *entry <= after));
        let queued = self.queue.range(from..).find(|(_, there)| *there).map(|(entry, _)| *entry);
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let in_tree = self.tree.range((after, Bound::Unbounded)).next().copied();
        queued.into_iter().chain(in_tree).min()
    }
}

#[cfg(test)]
#[path = "due_queue_test.rs"]
mod tests;
