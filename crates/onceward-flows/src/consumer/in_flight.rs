//! The effects in flight, which are polled beside whatever else their consumer awaits.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// The effects in flight. They make progress only while they are polled, and they hold connections and locks: so nothing
/// else is awaited without polling them meanwhile, or it could wait for what they hold.
pub(super) struct InFlight<F: Future> {
    /// Each a message, or a batch of them. Not behind `dyn`: so a consumer can be sent to another thread if its handler can.
    running: FuturesUnordered<F>,
    ended: VecDeque<F::Output>,
}

impl<F: Future> InFlight<F> {
    pub(super) fn new() -> Self {
        Self { running: FuturesUnordered::new(), ended: VecDeque::new() }
    }

    pub(super) fn push(&self, effect: F) {
        self.running.push(effect);
    }

    pub(super) fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// The next one that has ended; none if nothing is in flight.
    pub(super) async fn next(&mut self) -> Option<F::Output> {
        match self.ended.pop_front() {
            Some(ended) => Some(ended),
            None => self.running.next().await,
        }
    }

    /// Awaits something else, and polls the effects meanwhile.
    pub(super) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                output = &mut other => return output,
                Some(ended) = self.running.next() => self.ended.push_back(ended),
            }
        }
    }
}
