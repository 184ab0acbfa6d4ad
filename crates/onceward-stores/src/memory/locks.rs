//! Locks of transactions: which transaction holds each lock, which waits for which, and deadlock detection.
//!
//! A lock lasts until its transaction ends. There is no queue: the end of a transaction wakes all waiters,
//! and the first to try again gets the lock.

use std::task::Waker;

use hashbrown::HashMap;
use onceward::Id;

/// What can be locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockName {
    /// The record of an id.
    Record(Id),
    /// A name of the caller's choice.
    Own(String),
}

/// The number of a transaction.
pub(crate) type TransactionNumber = u64;

#[derive(Default)]
pub(crate) struct Locks {
    holders: HashMap<LockName, TransactionNumber>,
    /// Which transaction each waiting transaction waits for.
    waits: HashMap<TransactionNumber, TransactionNumber>,
    wakers: Vec<Waker>,
}

impl Locks {
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub(crate) fn holder(&self, name: &LockName) -> Option<TransactionNumber> {
        self.holders.get(name).copied()
    }

    /// The other transaction that holds the lock, if there is one.
    pub(crate) fn other_holder(&self, name: &LockName, own: TransactionNumber) -> Option<TransactionNumber> {
        self.holder(name).filter(|holder| *holder != own)
    }

    pub(crate) fn take(&mut self, name: LockName, number: TransactionNumber) {
        self.holders.insert(name, number);
    }

    /// Records that a transaction waits for another; `false` if that would be a deadlock, directly or through others.
    pub(crate) fn wait(&mut self, number: TransactionNumber, holder: TransactionNumber) -> bool {
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

    pub(crate) fn stop_waiting(&mut self, number: TransactionNumber) {
        self.waits.remove(&number);
    }

    /// Wakes this task when the next transaction ends.
    pub(crate) fn wake_later(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|other| other.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// Releases the locks of a transaction. The caller must wake the returned wakers outside of the mutex.
    pub(crate) fn release(&mut self, names: &[LockName]) -> Vec<Waker> {
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
    fn a_deadlock_is_detected_when_it_closes() {
        let mut locks = Locks::default();
        assert!(locks.wait(1, 2));
        assert!(locks.wait(2, 3));
        assert!(!locks.wait(3, 1), "1 waits for 2, and 2 for 3");
        locks.stop_waiting(2);
        assert!(locks.wait(3, 1));
    }

    #[test]
    fn a_lock_is_held_by_another_transaction_or_not() {
        let mut locks = Locks::default();
        let name = LockName::Own("a".into());
        locks.take(name.clone(), 7);
        assert_eq!(locks.other_holder(&name, 7), None);
        assert_eq!(locks.other_holder(&name, 8), Some(7));
        locks.release(std::slice::from_ref(&name));
        assert!(locks.is_empty());
    }
}
