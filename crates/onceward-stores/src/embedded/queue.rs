//! The bounded queue of batches for the writer thread, which takes all waiting batches at once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::writer::WriteRequest;

/// Batches that may wait. An engine has at most as many claims and as many completions on their way as its
/// limits say (65,536 by default), so this refuses only callers that send without waiting for answers.
const BATCHES_MAX: usize = 1 << 17;

/// Creates the two ends of a queue.
pub(crate) fn queue() -> (QueueSender, QueueReceiver) {
    let shared = Arc::new(QueueInner::default());
    (QueueSender(Arc::clone(&shared)), QueueReceiver(shared))
}

#[derive(Default)]
struct QueueInner {
    state: Mutex<QueueState>,
    /// Signalled when a batch is added or the sender is dropped.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    requests: Vec<WriteRequest>,
    /// One of the two ends was dropped.
    closed: bool,
    /// The receiver sleeps: only then does it need a system call to wake it.
    asleep: bool,
}

/// Why a batch was refused.
pub(crate) enum QueueRefusal {
    Full,
    Closed,
}

/// The callers' end. When it is dropped, waiting batches are still taken.
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

/// The writer's end. When it is dropped, also by a panic, waiting callers see their reply channel close.
pub(crate) struct QueueReceiver(Arc<QueueInner>);

impl QueueReceiver {
    /// Waits until there is something, and exchanges all of it for `requests`, which is empty. `false` when the
    /// sender was dropped and nothing is left.
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
        // Not under the lock: waking a caller may run the code of its executor.
        drop(left);
    }
}

impl QueueInner {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing that can panic happens under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
