//! Onceward makes retries safe by construction: whatever is sent again, its effect happens once, and
//! everyone gets the same answer.
//!
//! A [`Receipt`](receipt::Receipt) is the only thing it knows. This crate is the protocol and its
//! engine; it knows no wire and no database, and time only through its [`World`].

mod child;
mod clock;
mod error;
mod fingerprint;
mod id;
mod store;

pub use child::{ChildKey, child_key};
pub use clock::{Clock, SystemClock};
pub use error::{Applied, Error, ErrorKind, Result};
pub use fingerprint::Fingerprint;
pub use id::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, SCOPE_BYTES_MAX};
pub use store::{
    Caps, Cursor, Due, Found, Fut, Page, Record, Scan, ScanOf, Seen, State, Store, Swap, Swapped, Version,
};
