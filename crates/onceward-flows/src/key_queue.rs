//! What is waiting in this process, by ordering key: one piece of work has items of a key at a time, mostly one of them, in
//! the order in which they came, except for those that are set aside. Pure: it knows neither messages nor databases, and time only as
//! an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
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
    /// Items that let later ones of their key go ahead, by the time of the next try and the order in which they came here.
    aside: BTreeMap<(Instant, u64), (Arc<str>, T)>,
    set_aside: u64,
}

#[derive(Debug)]
struct Line<T> {
    items: VecDeque<T>,
    is_busy: bool,
}

impl<T> Default for KeyQueue<T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            ready: VecDeque::new(),
            paused: BTreeSet::new(),
            aside: BTreeMap::new(),
            set_aside: 0,
        }
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
        self.bring_back(now);
        let key = self.ready.pop_front()?;
        let line = self.lines.get_mut(&key).expect("a ready key has a line");
        line.is_busy = true;
        let item = line.items.pop_front().expect("a ready key has an item");
        Some((key, item))
    }

    /// Takes more items that may begin and fit, beside one of the key `taken`: first one of each further key, then the next
    /// ones of all these keys. Those of a key come in its order.
    pub(crate) fn take_more(
        &mut self,
        taken: &Arc<str>,
        limit: usize,
        fits: impl Fn(&T) -> bool,
    ) -> Vec<(Arc<str>, T)> {
        let (mut keys, mut more) = (vec![taken.clone()], Vec::new());
        let mut at = 0;
        while more.len() < limit && at < self.ready.len() {
            let line = self.lines.get_mut(&self.ready[at]).expect("a ready key has a line");
            let Some(item) = line.items.pop_front_if(|item| fits(item)) else {
                at += 1;
                continue;
            };
            line.is_busy = true;
            let key = self.ready.remove(at).expect("it was just seen");
            keys.push(key.clone());
            more.push((key, item));
        }
        while more.len() < limit && !keys.is_empty() {
            keys.retain(|key| {
                let items = &mut self.lines.get_mut(key).expect("a busy key has a line").items;
                let next = if more.len() < limit { items.pop_front_if(|item| fits(item)) } else { None };
                let found = next.is_some();
                more.extend(next.map(|item| (key.clone(), item)));
                found
            });
        }
        more
    }

    /// Ends the work on the item that was taken, and returns whether it was the last one of its key.
    pub(crate) fn done(&mut self, key: &Arc<str>) -> bool {
        let line = self.lines.get_mut(key).expect("a busy key has a line");
        line.is_busy = false;
        let is_last = line.items.is_empty();
        if is_last {
            self.lines.remove(key);
        } else {
            self.ready.push_back(key.clone());
        }
        is_last
    }

    /// Puts the item that was taken back in front of all others of its key, to be taken again at `until`.
    pub(crate) fn failed(&mut self, key: &Arc<str>, item: T, until: Instant) {
        self.put_back(key, [item], Some(until));
    }

    /// Puts items that were taken back in front of all others of their key, in their order, to be taken again at `until`,
    /// or next.
    pub(crate) fn put_back(
        &mut self,
        key: &Arc<str>,
        items: impl IntoIterator<Item = T, IntoIter: DoubleEndedIterator>,
        until: Option<Instant>,
    ) {
        let line = self.lines.get_mut(key).expect("a busy key has a line");
        line.is_busy = false;
        for item in items.into_iter().rev() {
            line.items.push_front(item);
        }
        match until {
            Some(until) => drop(self.paused.insert((until, key.clone()))),
            None => self.ready.push_front(key.clone()),
        }
    }

    /// Ends the work on the item that was taken: it waits until `until` for something that may come behind it, so later
    /// ones of its key go ahead of it.
    pub(crate) fn set_aside(&mut self, key: &Arc<str>, item: T, until: Instant) {
        self.done(key);
        self.set_aside += 1;
        self.aside.insert((until, self.set_aside), (key.clone(), item));
    }

    /// Puts those whose time has come behind all others of their keys, in the order in which they were set aside: what they
    /// wait for may be among those that were not tried yet.
    fn bring_back(&mut self, now: Instant) {
        while let Some(entry) = self.aside.first_entry().filter(|entry| entry.key().0 <= now) {
            let (key, item) = entry.remove();
            self.push(&key, item);
        }
    }

    /// Removes the waiting items of a key that no effect works on, and returns them.
    pub(crate) fn forget(&mut self, key: &Arc<str>) -> VecDeque<T> {
        let line = self.lines.remove(key);
        self.ready.retain(|ready| ready != key);
        self.paused.retain(|(_, paused)| paused != key);
        let mut items = line.map(|line| line.items).unwrap_or_default();
        items.extend(self.aside.extract_if(.., |_, (aside, _)| aside == key).map(|(_, (_, item))| item));
        items
    }

    /// Removes the items that no effect works on and that are not wanted any more, and returns how many there were.
    pub(crate) fn remove(&mut self, mut is_unwanted: impl FnMut(&T) -> bool) -> usize {
        let mut removed = 0;
        self.lines.retain(|_, line| {
            let before = line.items.len();
            line.items.retain(|item| !is_unwanted(item));
            removed += before - line.items.len();
            line.is_busy || !line.items.is_empty()
        });
        self.aside.retain(|_, (_, item)| {
            let stays = !is_unwanted(item);
            removed += usize::from(!stays);
            stays
        });
        let has_items =
            |key: &Arc<str>| self.lines.get(key).is_some_and(|line| !line.is_busy && !line.items.is_empty());
        self.ready.retain(has_items);
        self.paused.retain(|(_, key)| has_items(key));
        removed
    }

    /// When the next item that has failed may be taken again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let paused = self.paused.first().map(|(until, _)| *until);
        let aside = self.aside.first_key_value().map(|((until, _), _)| *until);
        paused.into_iter().chain(aside).min()
    }
}

#[cfg(test)]
#[path = "key_queue_test.rs"]
mod tests;
