//! The store in MySQL (8.0 and later) and MariaDB (10.6 and later).
//!
//! A batch of one kind is one transaction in two round trips: begin, write and read back, then commit. The
//! same rows are read back, under the locks of the write. The commit is sent separately, because a server continues with
//! what it was sent even if the client no longer waits: so a batch that timed out is never committed later.
//! A winner recognises its rows by `writer`, a random mark of the batch. Ids are kept as bytes, because the two
//! servers have no collation in common that tells `order` from `order `. The batch is sent as one JSON value
//! in hexadecimal, so there is nothing to escape.

mod batch;
pub(super) mod errors;
mod identity;
mod join;
mod scan;
mod schema;
mod statements;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod transactions;

#[doc(hidden)]
pub use errors::{call_failed, unconnected};
pub(crate) use join::swap_in;
pub use store::MySqlStore;
#[doc(hidden)]
pub use store::pool_of;
pub use transactions::{MySqlGuard, MySqlTransactions, MySqlTx};
