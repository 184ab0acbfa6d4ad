//! Tells the relays and consumers of this process which lanes have new messages, so that they look at those alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

use crate::lane::LANES;

/// Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Signal(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    changed: watch::Sender<()>,
    /// How often each lane was added to.
    lanes: Vec<AtomicU32>,
}

/// What one relay or consumer has heard of.
#[derive(Debug)]
pub(crate) struct AddedLanes {
    counts: Arc<Counts>,
    changed: watch::Receiver<()>,
    seen: Vec<u32>,
}

impl Default for Signal {
    fn default() -> Self {
        let lanes = (0..LANES).map(|_| AtomicU32::new(0)).collect();
        Self(Arc::new(Counts { changed: watch::Sender::new(()), lanes }))
    }
}

impl Signal {
    /// Messages of these lanes are committed.
    pub(super) fn added(&self, lanes: &[u32]) {
        for lane in lanes {
            self.0.lanes[*lane as usize].fetch_add(1, Ordering::Release);
        }
        self.0.changed.send_replace(());
    }

    /// Messages of some lanes are committed.
    pub(super) fn added_somewhere(&self) {
        let all: Vec<u32> = (0..LANES).collect();
        self.added(&all);
    }

    /// Hears of everything from now on.
    pub(super) fn listen(&self) -> AddedLanes {
        let changed = self.0.changed.subscribe();
        let mut listener = AddedLanes { counts: self.0.clone(), changed, seen: vec![0; LANES as usize] };
        listener.take();
        listener
    }
}

impl AddedLanes {
    /// Returns when there is something to take.
    pub(crate) async fn wait(&mut self) {
        // The sender lives as long as `counts`.
        let _ = self.changed.changed().await;
    }

    /// The lanes that were added to since the last call. Their messages are visible to whatever is read from now on.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        let mut taken = Vec::new();
        for ((lane, count), seen) in (0_u32..).zip(&self.counts.lanes).zip(&mut self.seen) {
            let count = count.load(Ordering::Acquire);
            if count != *seen {
                *seen = count;
                taken.push(lane);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_listener_hears_of_each_lane_once() {
        let signal = Signal::default();
        signal.added(&[1]);
        let (mut first, mut second) = (signal.listen(), signal.listen());
        assert!(first.take().is_empty(), "that was before it listened");
        signal.added(&[7, 1_023]);
        signal.clone().added(&[7]);
        for listener in [&mut first, &mut second] {
            listener.wait().await;
            assert_eq!(listener.take(), [7, 1_023]);
            assert!(listener.take().is_empty());
        }
        signal.added_somewhere();
        assert_eq!(first.take().len(), LANES as usize);
    }
}
