//! The store in SQLite, for services that keep their business tables in SQLite.
//!
//! One thread writes and one reads, each over a connection of its own, in WAL mode with a sync at every
//! commit. A batch is one transaction. Other processes on the same machine may use the
//! file at the same time; the one that has the write lock reads the machine's clock under it, and counts on from
//! the highest version ever given (`onceward_version`), so versions never go back, whatever the clock does.

pub(super) mod errors;
mod now;
mod scan;
mod schema;
mod store;
mod swap;
mod thread;
mod transactions;

#[doc(hidden)]
pub use errors::{failed, uncommitted};
pub use store::SqliteStore;
#[doc(hidden)]
pub use store::connect;
pub(crate) use swap::swap_in;
pub use transactions::{SqliteGuard, SqliteTransactions, SqliteTx};
