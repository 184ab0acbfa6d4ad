//! Tells watchers in this process which records have changed.
//!
//! A watcher that does not keep up loses the ids and is only told that some were lost: memory is bounded, and
//! a signal is a hint.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use onceward::{Id, Signals, Swap, Swapped, Watch};

/// Ids that wait for one watcher.
const WAITING_MAX: usize = 64;

/// Where changes are announced.
#[derive(Default)]
pub(crate) struct Broadcaster {
    watched: AtomicBool,
    inboxes: Mutex<Vec<Weak<Mutex<Inbox>>>>,
}

impl Broadcaster {
    /// A watch over everything that is announced from now on.
    pub(crate) fn watch(&self) -> Watch {
        let inbox = Arc::<Mutex<Inbox>>::default();
        let mut inboxes = lock(&self.inboxes);
        inboxes.retain(|other| other.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        self.watched.store(true, Ordering::Release);
        Box::new(Watcher(inbox))
    }

    /// Whether there may be watchers: without any, an announcement costs only this check.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Announces what a batch has changed.
    #[inline]
    pub(crate) fn announce_won(&self, batch: &[Swap], answers: &[Swapped]) {
        if self.is_watched() {
            let won = batch.iter().zip(answers).filter(|(_, answer)| matches!(answer, Swapped::Won(_)));
            self.announce(won.map(|(swap, _)| &swap.id));
        }
    }

    /// Announces that records may have changed, without saying which.
    #[cfg(any(feature = "etcd", feature = "redis"))]
    pub(crate) fn announce_lost(&self) {
        let mut wakers = Vec::new();
        for inbox in lock(&self.inboxes).iter().filter_map(Weak::upgrade) {
            let mut inbox = lock(&inbox);
            inbox.ids.clear();
            inbox.overflowed = true;
            wakers.extend(inbox.waker.take());
        }
        // Not under a lock: a waker runs the code of its executor.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Announces that these records have changed.
    pub(crate) fn announce<'a>(&self, changed: impl Iterator<Item = &'a Id>) {
        let changed: Vec<&Id> = changed.collect();
        if changed.is_empty() {
            return;
        }
        let mut inboxes = lock(&self.inboxes);
        let mut wakers = Vec::new();
        inboxes.retain(|inbox| {
            let Some(inbox) = inbox.upgrade() else { return false };
            wakers.extend(lock(&inbox).put(&changed));
            true
        });
        self.watched.store(!inboxes.is_empty(), Ordering::Release);
        drop(inboxes);
        // Not under a lock: a waker runs the code of its executor.
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What one watcher has not taken yet.
#[derive(Default)]
struct Inbox {
    ids: VecDeque<Id>,
    /// More ids were announced than fit.
    overflowed: bool,
    waker: Option<Waker>,
}

impl Inbox {
    fn put(&mut self, changed: &[&Id]) -> Option<Waker> {
        if self.overflowed || self.ids.len() + changed.len() > WAITING_MAX {
            self.ids.clear();
            self.overflowed = true;
        } else {
            self.ids.extend(changed.iter().map(|&id| id.clone()));
        }
        self.waker.take()
    }

    /// The next signal: an id, or `None` in place of the ids that were lost.
    fn take(&mut self) -> Poll<Option<Id>> {
        if std::mem::take(&mut self.overflowed) {
            return Poll::Ready(None);
        }
        self.ids.pop_front().map_or(Poll::Pending, |id| Poll::Ready(Some(id)))
    }
}

struct Watcher(Arc<Mutex<Inbox>>);

impl Signals for Watcher {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>> {
        Box::pin(poll_fn(|cx| {
            let mut inbox = lock(&self.0);
            let changed = inbox.take();
            if changed.is_pending() {
                inbox.waker = Some(cx.waker().clone());
            }
            changed
        }))
    }
}

/// Nothing that can panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "signals_test.rs"]
mod tests;
