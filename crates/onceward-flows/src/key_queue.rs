//! What is waiting in this process, by ordering key: at most one item of a key is worked on at a time, in the order in
//! which they came. Pure: it knows neither messages nor databases, and time only as an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

/// A queue for each key.
#[derive(Debug)]
pub(crate) struct KeyQueue<T> {
    lines: HashMap<Arc<str>, Line<T>>,
    /// Keys with an item that may begin, the longest waiting first.
    ready: VecDeque<Arc<str>>,
    /// Keys whose first item has failed, by the time of the next try.
    paused: BTreeSet<(Instant, Arc<str>)>,
}

#[derive(Debug)]
struct Line<T> {
    items: VecDeque<T>,
    is_busy: bool,
}

impl<T> Default for KeyQueue<T> {
    fn default() -> Self {
        Self { lines: HashMap::new(), ready: VecDeque::new(), paused: BTreeSet::new() }
    }
}

impl<T> KeyQueue<T> {
    /// Adds an item behind all others of its key.
    pub(crate) fn push(&mut self, key: &str, item: T) {
        if let Some(line) = self.lines.get_mut(key) {
            return line.items.push_back(item);
        }
        let key: Arc<str> = key.into();
        self.lines.insert(key.clone(), Line { items: VecDeque::from([item]), is_busy: false });
        self.ready.push_back(key);
    }

    /// The next item that may begin. Its key is busy until [`done`](Self::done) or [`failed`](Self::failed).
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Arc<str>, T)> {
        while self.paused.first().is_some_and(|(until, _)| *until <= now) {
            let (_, key) = self.paused.pop_first().expect("it was just seen");
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        let line = self.lines.get_mut(&key).expect("a ready key has a line");
        line.is_busy = true;
        let item = line.items.pop_front().expect("a ready key has an item");
        Some((key, item))
    }

    /// Ends the work on the item that was taken.
    pub(crate) fn done(&mut self, key: &Arc<str>) {
        let line = self.lines.get_mut(key).expect("a busy key has a line");
        line.is_busy = false;
        if line.items.is_empty() {
            self.lines.remove(key);
        } else {
            self.ready.push_back(key.clone());
        }
    }

    /// Puts the item that was taken back in front of all others of its key, to be taken again at `until`.
    pub(crate) fn failed(&mut self, key: &Arc<str>, item: T, until: Instant) {
        let line = self.lines.get_mut(key).expect("a busy key has a line");
        line.is_busy = false;
        line.items.push_front(item);
        self.paused.insert((until, key.clone()));
    }

    /// Removes the waiting items of a key that nobody works on, and returns them.
    pub(crate) fn forget(&mut self, key: &Arc<str>) -> VecDeque<T> {
        let line = self.lines.remove(key);
        self.ready.retain(|ready| ready != key);
        self.paused.retain(|(_, paused)| paused != key);
        line.map(|line| line.items).unwrap_or_default()
    }

    /// Removes the items that nobody works on and that are not wanted any more, and returns how many there were.
    pub(crate) fn remove(&mut self, mut is_unwanted: impl FnMut(&T) -> bool) -> usize {
        let mut removed = 0;
        self.lines.retain(|_, line| {
            let before = line.items.len();
            line.items.retain(|item| !is_unwanted(item));
            removed += before - line.items.len();
            line.is_busy || !line.items.is_empty()
        });
        let has_items =
            |key: &Arc<str>| self.lines.get(key).is_some_and(|line| !line.is_busy && !line.items.is_empty());
        self.ready.retain(has_items);
        self.paused.retain(|(_, key)| has_items(key));
        removed
    }

    /// When the next item that has failed may be taken again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.paused.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
#[path = "key_queue_test.rs"]
mod tests;
