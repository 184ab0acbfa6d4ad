//! Receipts in a table of the user's own database, next to the business tables they speak of.
//!
//! ```text
//! onceward_receipts   scope, operation, key: the id, and the primary key
//!                     id_high, id_middle, id_low   PostgreSQL: the id as numbers, the primary key there
//!                     state     held, done, unknown, gone; free is a place that was given up a moment ago
//!                     version   grows with every write to the id
//!                     due       when the lease, the retention or the tombstone ends; by the database's clock
//!                     created, updated
//!                     receipt   the encoded receipt, see `codec.rs` of the engine
//! onceward_schema     the migrations that were applied, one row each
//! ```
//!
//! **Versions.** A version is the database's clock in microseconds, or one more than the version before,
//! whichever is higher. The clock alone keeps two claims apart of which the first was rolled back. What a record
//! leaves behind when it is removed must not fit below the next one: a statement reads the clock a moment before it
//! writes. So a record that is young when it is removed leaves a `free` row for [`FREE_GRACE`], longer than any
//! statement of ours may run, and whoever claims the place meanwhile counts on from there. Scans and loads do not see
//! free rows.
//!
//! **Order.** Every statement takes its rows in the order of their ids, and each kind of swap is a
//! transaction of its own; so no two batches can wait for each other in a circle.
//!
//! | file | idea |
//! |---|---|
//! | `join.rs` | a receipt in a transaction that the caller holds, whatever its driver |
//! | `kinds.rs` | a batch, sorted and split by what has to be done |
//! | `natural.rs` | writes that are idempotent by themselves: a change of state, an insert by key |
//! | `row.rs` | from a row to a record and back |
//! | `schema.rs` | which migrations a database has had, and which it needs |
//! | `postgres/`, `sqlite/`, `mysql/` | one dialect each |
//! | `sqlx/` | transactions and pools of sqlx, in each dialect |

#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "not every dialect needs all that they share")
)]

mod join;
mod kinds;
#[cfg(feature = "mysql")]
pub mod mysql;
mod natural;
#[cfg(feature = "postgres")]
pub mod postgres;
mod row;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
pub mod sqlx;

use std::time::Duration;

pub use join::{Cell, Dialect, Joined, SqlTransaction, Value};
pub use natural::{Inserted, States, Transition, insert, transition};
pub use schema::{Migrated, Migrations};

/// How long the place of a record that was young when it was removed remembers its version. Longer than
/// any statement may run.
const FREE_GRACE: Duration = Duration::from_secs(120);
/// No call may take longer than this, whatever the options say; see [`FREE_GRACE`].
const CALL_MAX: Duration = Duration::from_secs(60);
/// Bytes of receipts in one page of a scan; at least one record is always given.
const PAGE_BYTES_MAX: i64 = 16 << 20;
/// Free rows removed in one go.
const PURGE_ROWS_MAX: i64 = 1_000;
/// A deadlock or a serialization failure is answered by trying again, so often.
const TRIES_MAX: usize = 10;

/// How to use a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections of the store's own. A handful keeps several batches in flight; more only compete.
    pub connections: usize,
    /// How long one call may take before it is an error. At most a minute.
    pub call_timeout: Duration,
    /// Whether opening brings the tables up to date.
    pub migrations: Migrations,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 8, call_timeout: Duration::from_secs(10), migrations: Migrations::Apply }
    }
}

impl Options {
    fn call_timeout(&self) -> Duration {
        self.call_timeout.clamp(Duration::from_millis(10), CALL_MAX)
    }
}
