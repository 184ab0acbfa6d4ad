//! Where batches wait for the writer, which takes all that wait at once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::writer::WriteRequest;

/// Batches that may wait. An engine has at most as many claims and as many completions on their way as its
/// limits say (65,536 by default), so this refuses only who asks without end and waits for no answer.
const BATCHES_MAX: usize = 1 << 17;

/// Makes the two ends.
pub(crate) fn queue() -> (QueueSender, QueueReceiver) {
    let shared = Arc::new(QueueInner::default());
    (QueueSender(Arc::clone(&shared)), QueueReceiver(shared))
}

#[derive(Default)]
struct QueueInner {
    state: Mutex<QueueState>,
    /// Something was put in, or the putter is gone.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    requests: Vec<WriteRequest>,
    /// One of the two ends is gone.
    closed: bool,
    /// The taker sleeps: only then is it worth a system call to wake it.
    asleep: bool,
}

/// Why a batch was not taken in.
pub(crate) enum QueueRefusal {
    Full,
    Closed,
}

/// The callers' end. When it is dropped, what waits is still taken.
pub(crate) struct QueueSender(Arc<QueueInner>);

impl QueueSender {
    pub(crate) fn put(&self, request: WriteRequest) -> Result<(), QueueRefusal> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(QueueRefusal::Closed);
        }
        if state.requests.len() >= BATCHES_MAX {
            return Err(QueueRefusal::Full);
        }
        state.requests.push(request);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.0.changed.notify_one();
        }
        Ok(())
    }
}

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

/// The writer's end. When it is dropped, also by a panic, those who wait are told by the loss of their
/// answers.
pub(crate) struct QueueReceiver(Arc<QueueInner>);

impl QueueReceiver {
    /// Waits until there is something, and exchanges all of it for `asks`, which is empty. `false` when
    /// the putter is gone and nothing is left.
    pub(crate) fn take(&self, requests: &mut Vec<WriteRequest>) -> bool {
        let mut state = self.0.lock();
        while state.requests.is_empty() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        std::mem::swap(&mut state.requests, requests);
        true
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.closed = true;
            std::mem::take(&mut state.requests)
        };
        // Not under the lock: telling a caller may run what the caller waits in.
        drop(left);
    }
}

impl QueueInner {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing that can panic happens under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
