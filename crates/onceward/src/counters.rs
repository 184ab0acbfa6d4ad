//! Counters with names: declared in one list, counted without a lock, read together. For the engine and
//! for the crates around it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares `Counters`, which count, and `Counts`, a reading of them that anyone can export.
#[doc(hidden)]
#[macro_export]
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: $crate::Counter,)+ }

        /// A reading of all counters; each only ever grows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.read(),)+ }
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

/// One number that only ever grows.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `by` at once.
    pub fn add(&self, by: usize) {
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    /// Counts one.
    pub fn one(&self) {
        self.add(1);
    }

    /// The number now.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
