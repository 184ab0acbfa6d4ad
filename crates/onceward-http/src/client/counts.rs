//! What a client or layer has done, as plain counters that anyone can export.

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
    /// Calls that were begun.
    calls,
    /// Tries that were sent.
    tries,
    /// Of those, retries.
    retries,
    /// Tries without a whole answer.
    tries_failed,
    /// Calls that ended because the host had had its share of retries.
    stopped_by_budget,
    /// Calls that were not sent, or not again, because the host is left alone.
    stopped_by_breaker,
    /// Calls that ended because their time or their tries were used up.
    stopped_by_terms,
    /// Calls whose outcome nobody can tell.
    unknown,
    /// Answers that the server had from an earlier try.
    replays,
    /// Answers that came from our own journal.
    replays_from_journal,
    /// Requests written to the journal.
    journaled,
    /// Requests that another process had left and that were taken up again.
    resumed,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
