//! A signal within this process that there is something to do. A waiter is woken by every signal that came
//! since it last looked; signals that were not waited for are merged into one.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::sync::Mutex;
use super::wakers::Wakers;

pub(crate) struct Signal {
    state: Mutex<SignalState>,
}

impl Default for Signal {
    fn default() -> Self {
        Self { state: Mutex::new(SignalState::default()) }
    }
}

#[derive(Default)]
struct SignalState {
    count: u64,
    wakers: Wakers,
}

impl Signal {
    /// Wakes all waiters.
    pub(crate) fn wake(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.count += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Ready when there were more than `count`. Dropping it frees its place in the list.
    pub(crate) fn past(self: &Arc<Self>, count: u64) -> impl Future<Output = ()> + Send + use<> {
        let mut slot = Slot { signal: self.clone(), count, at: None };
        poll_fn(move |cx| {
            let mut state = slot.signal.state.lock();
            if state.count != count {
                slot.at = None;
                return Poll::Ready(());
            }
            slot.at = Some(state.wakers.put(slot.at, cx.waker()));
            Poll::Pending
        })
    }
}

/// One waiter's place in the list, which lasts until the next signal.
struct Slot {
    signal: Arc<Signal>,
    count: u64,
    at: Option<usize>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let mut state = self.signal.state.lock();
            if state.count == self.count {
                state.wakers.remove(at);
            }
        }
    }
}
