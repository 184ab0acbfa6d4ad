//! A cache of done receipts, bounded by bytes and by age. Safe because an outcome never changes while it is
//! kept: it can only be erased, and the bound on the age says how long an erased one may still be given.
//!
//! A receipt enters when it is first *replayed*, not when it is made: most intents are never retried,
//! and keeping each of them would cost every first run and push out the few that are.

use std::time::Duration;

use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::id::Id;
use crate::outcome::{Snapshot, Verdict};
use crate::receipt::{Done, End, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Age, Due, Version};

/// How long a receipt is cached before the store is asked again: an erasure is over everywhere after that.
pub const CACHE_AGE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Cache {
    kept: QuickCache<Id, Kept, ByBytes, hashbrown::DefaultHashBuilder>,
    age_max: Duration,
}

#[derive(Clone)]
struct Kept {
    done: Done,
    version: Version,
    expires_at: Option<Duration>,
    /// The store is asked again from then on.
    fresh_until: Duration,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize, age_max: Duration) -> Self {
        // Receipts of this size are typical; the estimate only shapes the cache's own tables.
        let items = (bytes_max / 512).max(1);
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(items).weight_capacity(bytes_max as u64);
        // Most retries come soon after the first try and never again, so half of the capacity is for what
        // is merely recent; the default of a few per cent would let a receipt go within milliseconds.
        options.hot_allocation(0.5);
        let options = options.build().expect("both capacities are given");
        Self {
            age_max,
            kept: QuickCache::with_options(
                options,
                ByBytes,
                hashbrown::DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// The receipt of a success, with what remains of its retention. `None` once that is over.
    pub(crate) fn load(&self, id: &Id, runtime: &dyn Runtime) -> Option<Receipt> {
        let kept = self.kept.get(id)?;
        let now = runtime.now();
        if now >= kept.fresh_until {
            self.kept.remove(id);
            return None;
        }
        let due = match kept.expires_at.map(|at| at.saturating_sub(now)) {
            None => Due::Never,
            Some(Duration::ZERO) => {
                self.kept.remove(id);
                return None;
            }
            Some(remaining) => Due::In(remaining),
        };
        Some(Receipt { version: kept.version, due, age: Age::default(), status: Status::Done(kept.done) })
    }

    /// Removes a receipt.
    pub(crate) fn forget(&self, id: &Id) {
        self.kept.remove(id);
    }

    /// Keeps a receipt if it is one that cannot change. `asked_at` is when the store was asked: the
    /// remaining time is counted from there, so it ends here no later than in the store.
    pub(crate) fn keep(&self, id: &Id, receipt: &Receipt, asked_at: Duration) {
        self.keep_until(id, receipt, asked_at, asked_at + self.age_max);
    }

    /// The same, until a time of this process: what the front knew ends here no later than there.
    pub(crate) fn keep_until(&self, id: &Id, receipt: &Receipt, asked_at: Duration, fresh_until: Duration) {
        let Status::Done(done) = &receipt.status else { return };
        let End::Outcome(outcome) = &done.end else { return };
        if outcome.verdict() != Verdict::Succeeded || !matches!(outcome.snapshot(), Snapshot::Kept(_)) {
            return;
        }
        let expires_at = match receipt.due {
            Due::Never => None,
            Due::In(remaining) => Some(asked_at + remaining),
            Due::Over(_) => return,
        };
        self.kept.insert(
            id.clone(),
            Kept {
                done: Done { job: None, ..done.clone() },
                version: receipt.version,
                expires_at,
                fresh_until,
            },
        );
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Id, Kept> for ByBytes {
    fn weight(&self, id: &Id, kept: &Kept) -> u64 {
        let body = match &kept.done.end {
            End::Outcome(outcome) => outcome.body().len(),
            End::Closed(_) => 0,
        };
        (id.as_bytes().len() + body + size_of::<Kept>() + size_of::<Id>()) as u64
    }
}
