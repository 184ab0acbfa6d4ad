//! Done receipts kept at hand, bounded by bytes. Safe because a success never changes while it is
//! kept; failures stay out, since another policy may have one of them tried again.
//!
//! A receipt enters when it is first *replayed*, not when it is made: most intents are never retried,
//! and keeping each of them would cost every first run and push out the few that are.

use std::time::Duration;

use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::id::Id;
use crate::outcome::{Snapshot, Verdict};
use crate::receipt::{Done, Receipt, Status};
use crate::store::{Due, Version};
use crate::world::World;

pub(crate) struct Cache {
    kept: QuickCache<Id, Kept, ByBytes, hashbrown::DefaultHashBuilder>,
}

#[derive(Clone)]
struct Kept {
    done: Done,
    version: Version,
    expires_at: Option<Duration>,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        // Receipts of this size are typical; the estimate only shapes the cache's own tables.
        let items = (bytes_max / 512).max(1);
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(items).weight_capacity(bytes_max as u64);
        // Most retries come soon after the first try and never again, so half of the room is for what
        // is merely recent; the default of a few per cent would let a receipt go within milliseconds.
        options.hot_allocation(0.5);
        let options = options.build().expect("both capacities are given");
        Self {
            kept: QuickCache::with_options(
                options,
                ByBytes,
                hashbrown::DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// The receipt of a success, with what remains of its retention. `None` once that is over.
    pub(crate) fn load(&self, id: &Id, world: &dyn World) -> Option<Receipt> {
        let kept = self.kept.get(id)?;
        let due = match kept.expires_at.map(|at| at.saturating_sub(world.now())) {
            None => Due::Never,
            Some(Duration::ZERO) => {
                self.kept.remove(id);
                return None;
            }
            Some(remaining) => Due::In(remaining),
        };
        Some(Receipt { version: kept.version, due, status: Status::Done(kept.done) })
    }

    /// Keeps a receipt if it is one that cannot change. `asked_at` is when the store was asked: the
    /// remaining time is counted from there, so it ends here no later than in the store.
    pub(crate) fn keep(&self, id: &Id, receipt: &Receipt, asked_at: Duration) {
        let Status::Done(done) = &receipt.status else { return };
        if done.outcome.verdict() != Verdict::Succeeded
            || !matches!(done.outcome.snapshot(), Snapshot::Kept(_))
        {
            return;
        }
        let expires_at = match receipt.due {
            Due::Never => None,
            Due::In(remaining) => Some(asked_at + remaining),
            Due::Over(_) => return,
        };
        self.kept.insert(id.clone(), Kept { done: done.clone(), version: receipt.version, expires_at });
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Id, Kept> for ByBytes {
    fn weight(&self, id: &Id, kept: &Kept) -> u64 {
        (id.as_bytes().len() + kept.done.outcome.body().len() + size_of::<Kept>() + size_of::<Id>()) as u64
    }
}
