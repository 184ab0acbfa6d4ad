//! Reads a partition of the source in a task of its own, as far as there are permits for its messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::source::{Delivery, Source};

/// A source that cannot be read is tried again after this.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// From a reader: the fence tells a message of a partition that was lost and gained again meanwhile.
pub(super) struct Arrived {
    pub(super) part: u32,
    pub(super) fence: i64,
    pub(super) delivery: Delivery,
    pub(super) permit: OwnedSemaphorePermit,
}

/// Reads a partition in a task of its own.
pub(super) struct Reading {
    pub(super) source: Arc<dyn Source>,
    pub(super) part: u32,
    pub(super) fence: i64,
    pub(super) permits: Arc<Semaphore>,
    pub(super) arrivals: mpsc::UnboundedSender<Arrived>,
    pub(super) is_read: Arc<AtomicBool>,
}

impl Reading {
    pub(super) async fn read(self, mut position: i64) {
        loop {
            if let Err(error) = self.read_on(&mut position).await {
                let part = self.part;
                self.is_read.store(false, Ordering::Relaxed);
                tracing::warn!(part, %error, "a partition cannot be read, trying again");
            }
            if self.arrivals.is_closed() {
                return;
            }
            tokio::time::sleep(REOPEN_PAUSE).await;
        }
    }

    async fn read_on(&self, position: &mut i64) -> Result<()> {
        let mut reader = self.source.open(self.part, *position).await?;
        self.is_read.store(true, Ordering::Relaxed);
        loop {
            let Ok(permit) = self.permits.clone().acquire_owned().await else { return Ok(()) };
            let delivery = reader.next().await?;
            *position = delivery.position;
            let arrived = Arrived { part: self.part, fence: self.fence, delivery, permit };
            if self.arrivals.send(arrived).is_err() {
                return Ok(());
            }
        }
    }
}
