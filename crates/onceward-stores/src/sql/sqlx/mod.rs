//! Receipts in transactions of [sqlx](https://docs.rs/sqlx), for code that has its connections from there.
//!
//! A transaction that the caller holds is joined as it is: `Joined(&mut tx)`. [`SqlxTransactions`] makes a
//! pool one that [`Onceward::transact`](onceward::Onceward::transact) takes. Every statement is that of
//! the dialect; nothing here contains SQL of its own.
//!
//! **A begin that is cancelled.** On PostgreSQL, sqlx 0.9.0 gives a connection back to its pool with a
//! transaction open on it when the future of `pool.begin()` is dropped at the wrong moment. `SqlxTransactions`
//! does not begin that way. Who begins a transaction and joins it with `Joined` should not let a client that
//! hangs up cancel it there: begin in a task of its own, or leave the beginning to `transact`.
//!
//! **SQLite** has one writer at a time, and a transaction that only reads first may find that it cannot write
//! any more. Begin with `pool.begin_with("BEGIN IMMEDIATE")` where a receipt is to ride along.
//!
//! | file | idea |
//! |---|---|
//! | `driver.rs` | what differs from one database to the next |
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
