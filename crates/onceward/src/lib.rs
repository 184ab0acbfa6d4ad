#![doc = include_str!("../README.md")]

mod ask;
mod caps;
mod child;
mod clock;
#[doc(hidden)]
pub mod codec;
mod counters;
mod decide;
mod engine;
mod error;
mod fingerprint;
mod front;
#[cfg(test)]
mod fuzz_test;
mod id;
mod join;
#[cfg(feature = "serde")]
mod json;
mod outcome;
mod policy;
pub mod receipt;
mod runtime;
#[cfg(feature = "serde")]
mod serde_text;
mod store;
#[doc(hidden)]
pub mod transition;

/// The crate whose type of bytes is in signatures here, in the version that fits.
pub use bytes;

pub use ask::Ask;
pub use caps::{Caps, ClockSource, DueLookup, Hints, Promises};
pub use child::{ChildKey, child_key};
pub use clock::{Clock, SystemClock};
#[doc(hidden)]
pub use counters::Counter;
pub use decide::Refusal;
#[doc(hidden)]
pub use decide::{Decision, Takeover, decide};
#[doc(hidden)]
pub use engine::Rules;
pub use engine::{
    Answer, CACHE_AGE_MAX, Changed, Claimed, Completed, Counts, Enqueued, ErasedPage, Lease, Limits,
    Onceward, OncewardBuilder, ReceiptPage, Recorded, Sweep, Swept, Ticket, UnknownCount, Unreadable, Worked,
    Worker, WorkerBuilder, WorkerCounts, WorkerOptions,
};
pub use error::{Applied, Error, ErrorKind, PriorReceipt, Result};
pub use fingerprint::Fingerprint;
#[doc(hidden)]
pub use front::entry as front_entry;
pub use front::{Front, FrontCache, FrontKey, FrontPut, IdentitySource, StoreIdentity};
pub use id::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, SCOPE_BYTES_MAX};
pub use join::{Fault, Join, Transactions};
pub use outcome::{Effect, NOTE_BYTES_MAX, Outcome, Snapshot, Stopped, Verdict};
pub use policy::{
    BACKOFF_MAX, Backoff, KeepInput, LEASE_MAX, LEASE_MIN, OnDuplicate, OnExpired, OnFailure, OnUnknown,
    Policy, PolicyBuilder, RETENTION_MAX, Retention, TRIES_MAX, WAIT_MAX,
};
pub use receipt::{Attempt, Closed, Fence, Prior, Receipt};
pub use runtime::{Runtime, Task, TokioRuntime};
pub use store::{
    Age, Choose, Cursor, Due, Filter, Found, Loaded, Page, Record, Scan, ScanTarget, Seen, Signals, State,
    Store, StoreFuture, Swap, Swapped, TextMatch, Version, Watch, take_by_scan,
};
pub use transition::{Erase, Settlement};
