//! Receipts in transactions of [sqlx](https://docs.rs/sqlx), for code that uses sqlx for its connections.
//!
//! A transaction that the caller holds is used as it is: `InTransaction(&mut tx)`. [`SqlxTransactions`] makes a pool
//! usable for [`Onceward::transact`](onceward::Onceward::transact). The statements are those of the dialects; there is no
//! other SQL here.
//!
//! **A begin that is cancelled.** On PostgreSQL, sqlx 0.9.0 gives a connection back to its pool with a
//! transaction open on it when the future of `pool.begin()` is dropped at the wrong moment. `SqlxTransactions`
//! does not begin that way. If you begin a transaction yourself and use it with `InTransaction`, a client that hangs
//! up must not cancel that future: begin in a task of its own, or let `transact` begin.
//!
//! **SQLite** has one writer at a time, and a transaction that only reads first may find that it cannot write
//! any more. Begin with `pool.begin_with("BEGIN IMMEDIATE")` if a receipt is to be written in it.
//!
//! | file | idea |
//! |---|---|
//! | `driver.rs` | what differs between the databases |
//! | `join.rs` | a transaction that the caller holds |
//! | `transactions.rs` | transactions from a pool |
//! | `postgres.rs`, `mysql.rs`, `sqlite.rs` | one database each |

mod driver;
mod join;
#[cfg(feature = "sqlx-mysql")]
mod mysql;
#[cfg(feature = "sqlx-postgres")]
mod postgres;
#[cfg(feature = "sqlx-sqlite")]
mod sqlite;
mod transactions;

pub use driver::Driver;
pub use transactions::{SqlxGuard, SqlxTransactions, SqlxTx};
