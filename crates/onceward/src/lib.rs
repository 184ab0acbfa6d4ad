//! Onceward makes retries safe by construction: whatever is sent again, its effect happens once, and
//! everyone gets the same answer.
//!
//! A [`Receipt`](receipt::Receipt) is the only thing it knows. This crate is the protocol and its
//! engine; it knows no wire and no database, and time only through its [`World`].

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
mod world;

pub use ask::Ask;
pub use child::{ChildKey, child_key};
pub use clock::{Clock, SystemClock};
#[doc(hidden)]
pub use counters::Counter;
pub use decide::{Decision, Refusal, Takeover, decide};
pub use engine::{
    Abandoned, AbandonedPage, Answer, Builder, Changed, Claimed, Completed, Completer, Completion, Counts,
    Lease, Limits, Onceward, Pace, Ran, Recorded, Rules, Settlement, Sweep, Swept, Ticket,
};
pub use error::{Applied, Error, ErrorKind, Result, Sight};
pub use fingerprint::Fingerprint;
pub use id::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, SCOPE_BYTES_MAX};
pub use join::{Fault, Join, Transactions};
pub use outcome::{Effect, NOTE_BYTES_MAX, Outcome, Snapshot, Stopped, Verdict};
pub use policy::{
    LEASE_MAX, LEASE_MIN, OnDuplicate, OnExpired, OnFailure, OnUnknown, Policy, RETENTION_MAX, Retention,
    WAIT_MAX,
};
pub use receipt::{Attempt, Fence, Receipt};
pub use store::{
    Caps, Cursor, Due, Found, Fut, Groups, Page, Record, Scan, ScanOf, Seen, State, Store, Swap, Swapped,
    Version,
};
pub use world::{Task, TokioWorld, World};
