//! A list of wakers with numbered slots, so that each waiter can renew or remove its own.

use std::task::Waker;

/// The wakers of all that wait for the same event. A change takes them all out at once.
#[derive(Default)]
pub(crate) struct Wakers {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Wakers {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn put(&mut self, at: Option<usize>, waker: &Waker) -> usize {
        if let Some(at) = at {
            match &mut self.slots[at] {
                Some(kept) if kept.will_wake(waker) => {}
                slot => *slot = Some(waker.clone()),
            }
            return at;
        }
        if let Some(at) = self.free.pop() {
            self.slots[at] = Some(waker.clone());
            return at;
        }
        self.slots.push(Some(waker.clone()));
        self.slots.len() - 1
    }

    pub(crate) fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at)
            && slot.take().is_some()
        {
            self.free.push(at);
        }
    }
}

impl IntoIterator for Wakers {
    type Item = Waker;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<Waker>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.into_iter().flatten()
    }
}
