//! Messages that a broker has removed before they were handled: noticed when a partition is opened, logged and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often that was noticed. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps(Arc<AtomicU64>);

impl Gaps {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the log begins at `first`, behind the next position after `after`, which is the last one handled.
    pub(crate) fn note(&self, place: &str, after: i64, first: i64) {
        self.0.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            place,
            after,
            first,
            "the broker has removed messages behind the last one that was handled; those of this partition among them \
             are lost: keep messages for longer than a consumer may be stopped"
        );
    }
}
