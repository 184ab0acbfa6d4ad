//! What the engine has seen, as plain counters that anyone can export.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)+ }

        /// A reading of all counters; each only ever grows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Ordering::Relaxed),)+ }
            }
        }

        impl Counts {
            /// Every counter with its name, in a fixed order: for exporters.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counts! {
    /// Batches sent to the store.
    store_batches,
    /// Swaps in those batches.
    store_swaps,
    /// Loads sent to the store.
    store_loads,
    /// Calls to the store that failed.
    store_errors,
    /// Claims won.
    claims,
    /// Claims won in the place of a former owner, a failure or an expired receipt.
    takeovers,
    /// Outcomes recorded.
    completions,
    /// Outcomes that could not be recorded at the first try; their callers were answered all the same.
    completions_delayed,
    /// Outcomes that were never recorded: the lease ended before the store came back.
    completions_given_up,
    /// Answers given from a recorded outcome.
    replays,
    /// Of those, answered from this process's memory.
    replays_cached,
    /// Duplicates that waited for a run in this process.
    waits_local,
    /// Waits for a run in another process.
    waits_remote,
    /// Refusals of any kind.
    refusals,
    /// Leases renewed.
    renewals,
    /// Leases lost while the work ran; the work was cancelled.
    leases_lost,
    /// Writes of a former owner that came too late and changed nothing.
    fenced_off,
    /// Receipts that became unknown.
    unknowns,
    /// Receipts given up so that the next ask runs.
    releases,
    /// Bodies over the bound, not stored.
    bodies_omitted,
    /// Receipts removed by sweeping.
    swept,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: usize) {
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }
}
