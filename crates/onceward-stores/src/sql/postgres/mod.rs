//! The store in PostgreSQL.
//!
//! Each kind of swap in a batch is one statement and one transaction, each on a connection of its own, so
//! that their commits share a sync. The clock is the server's. Connections are the store's own: a call
//! that is given up takes its connection with it.
//!
//! **Bloat.** A receipt's life leaves dead rows (the claim, the removal, and one for each renewal); autovacuum is
//! set to collect them early. While a long transaction prevents that, dead rows pile up at this
//! rate and no faster, and a sweep does not read them again and again: see `sweep.rs`, and
//! `docs/stores.md` for numbers.

mod columns;
mod connect;
mod ctid_cache;
mod digest;
pub(super) mod errors;
mod identity;
mod join;
mod scan;
mod scan_statements;
mod schema;
mod server_check;
mod single_row;
mod statement_cache;
mod statements;
mod store;
mod swap;
mod sweep;
mod take;
#[cfg(feature = "tls")]
mod tls;
mod transactions;
mod tx;

#[doc(hidden)]
pub use connect::pool_of;
pub(crate) use join::swap_in;
pub use statement_cache::{PreparedTransaction, StatementCache};
pub use store::PostgresStore;
pub use transactions::{Isolation, PostgresTransactions};
pub use tx::PostgresTx;
