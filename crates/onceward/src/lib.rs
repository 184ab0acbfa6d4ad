#![doc = include_str!("../README.md")]

mod ask;
mod child;
mod clock;
pub mod codec;
mod counters;
mod decide;
mod engine;
mod error;
mod fingerprint;
mod id;
mod join;
mod outcome;
mod policy;
pub mod receipt;
mod store;
pub mod transition;
mod world;

pub use ask::Ask;
pub use child::{ChildKey, child_key};
pub use clock::{Clock, SystemClock};
#[doc(hidden)]
pub use counters::Counter;
pub use decide::{Decision, Refusal, Takeover, decide};
pub use engine::{
    Answer, Builder, CACHE_AGE_MAX, Changed, Claimed, Completion, Counts, Enqueued, Lease, Limits, Onceward,
    Pace, Ran, Recorded, Rules, Sweep, Swept, Ticket, WorkCounts, Worker,
};
pub use error::{Applied, Error, ErrorKind, Result, Sight};
pub use fingerprint::Fingerprint;
pub use id::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, SCOPE_BYTES_MAX};
pub use join::{Fault, Join, Transactions};
pub use outcome::{Effect, NOTE_BYTES_MAX, Outcome, Snapshot, Stopped, Verdict};
pub use policy::{
    BACKOFF_MAX, Backoff, KeepInput, LEASE_MAX, LEASE_MIN, OnDuplicate, OnExpired, OnFailure, OnUnknown,
    Policy, RETENTION_MAX, Retention, TRIES_MAX, WAIT_MAX,
};
pub use receipt::{Attempt, Closed, Fence, Prior, Receipt};
pub use store::{
    Age, Caps, ClockOf, Cursor, Due, DueBy, Filter, Found, Fut, Hints, Loaded, Page, Promises, Record, Scan,
    ScanOf, Seen, Signals, State, Store, Swap, Swapped, Text, Version, Watch,
};
pub use transition::Settlement;
pub use world::{Task, TokioWorld, World};
