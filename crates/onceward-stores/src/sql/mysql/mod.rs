//! The store in MySQL (8.0 and later) and MariaDB (10.6 and later).
//!
//! A batch of one kind is one transaction in two round trips: begin, write and look, then commit. The look is
//! at the same rows, under the locks that the write took. The commit goes by itself, because a server goes on
//! with what it was sent whether or not anybody still waits: so what was given up is never committed later.
//! A winner knows its rows by `writer`, a random mark of the batch. Ids are kept as bytes, because the two
//! servers have no collation in common that tells `order` from `order `. The batch travels as one JSON value
//! in hexadecimal, so there is nothing to escape.

mod batch;
pub(super) mod errors;
mod join;
mod scan;
mod schema;
mod statements;
mod store;
mod transactions;

pub(crate) use join::swap_in;
pub use store::MySqlStore;
pub use transactions::{MySqlGuard, MySqlTransactions, MySqlTx};
