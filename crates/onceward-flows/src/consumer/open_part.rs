//! A partition that this process works on: how far it is handled, and what is in flight of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::progress::Progress;
use crate::source::HandledMessage;

/// A partition in which nothing has come for this long has nothing left that was in flight when its owner ended.
const QUIET: Duration = Duration::from_secs(1);

/// A partition that this process works on.
pub(super) struct OpenPart {
    pub(super) fence: i64,
    pub(super) reader: JoinHandle<()>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) progress: Progress,
    pub(super) handled: Vec<HandledMessage>,
    pub(super) in_flight: usize,
    /// Messages that may have been in flight when the previous owner ended without warning.
    pub(super) suspects_left: usize,
    /// The last time that something came or ended.
    pub(super) last_event: Instant,
    /// Whether the source is being read, and has no error.
    pub(super) is_read: Arc<AtomicBool>,
    /// Whether dead letters were looked for.
    pub(super) has_retries_read: bool,
    /// Dead letters that are being retried.
    pub(super) retries: usize,
}

impl OpenPart {
    /// When everything that may have been in flight is handled; nothing there: not yet.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        let is_idle = self.suspects_left > 0
            && self.progress.is_idle()
            && self.retries == 0
            && self.has_retries_read
            && self.is_read.load(Ordering::Relaxed);
        is_idle.then(|| self.last_event + QUIET)
    }

    pub(super) fn clear_suspicion(&mut self, messages_max: usize) {
        self.suspects_left = 0;
        self.permits.add_permits(messages_max - 1);
    }
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
