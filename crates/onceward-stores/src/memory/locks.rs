//! Which transaction has written what, and which waits for which.
//!
//! A lock lasts until its transaction ends. There is no queue: the end of a transaction wakes everyone who
//! waits, and the first who looks gets it.

use std::task::Waker;

use hashbrown::HashMap;
use onceward::Id;

/// What can be locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// The record of an id.
    Record(Id),
    /// Something of the caller's own.
    Own(String),
}

/// The number of a transaction.
pub(crate) type Number = u64;

#[derive(Default)]
pub(crate) struct Locks {
    holders: HashMap<Name, Number>,
    /// Whose end each transaction waits for.
    waits: HashMap<Number, Number>,
    wakers: Vec<Waker>,
}

impl Locks {
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub(crate) fn holder(&self, name: &Name) -> Option<Number> {
        self.holders.get(name).copied()
    }

    /// The other transaction that has it, if there is one.
    pub(crate) fn other_holder(&self, name: &Name, own: Number) -> Option<Number> {
        self.holder(name).filter(|holder| *holder != own)
    }

    pub(crate) fn take(&mut self, name: Name, number: Number) {
        self.holders.insert(name, number);
    }

    /// Notes that a transaction waits for another; `false` if that one waits for it, directly or not.
    pub(crate) fn wait(&mut self, number: Number, holder: Number) -> bool {
        let mut behind = Some(holder);
        while let Some(waiting) = behind {
            if waiting == number {
                return false;
            }
            behind = self.waits.get(&waiting).copied();
        }
        self.waits.insert(number, holder);
        true
    }

    pub(crate) fn stop_waiting(&mut self, number: Number) {
        self.waits.remove(&number);
    }

    /// Wakes this one at the next end of a transaction.
    pub(crate) fn wake_later(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|other| other.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// Gives back what a transaction has locked. The wakers are to be woken outside of the mutex.
    pub(crate) fn release(&mut self, names: &[Name]) -> Vec<Waker> {
        for name in names {
            self.holders.remove(name);
        }
        std::mem::take(&mut self.wakers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_waits_is_seen_when_it_closes() {
        let mut locks = Locks::default();
        assert!(locks.wait(1, 2));
        assert!(locks.wait(2, 3));
        assert!(!locks.wait(3, 1), "1 waits for 2, and 2 for 3");
        locks.stop_waiting(2);
        assert!(locks.wait(3, 1));
    }

    #[test]
    fn a_lock_is_another_ones_or_not() {
        let mut locks = Locks::default();
        let name = Name::Own("a".into());
        locks.take(name.clone(), 7);
        assert_eq!(locks.other_holder(&name, 7), None);
        assert_eq!(locks.other_holder(&name, 8), Some(7));
        locks.release(std::slice::from_ref(&name));
        assert!(locks.is_empty());
    }
}
