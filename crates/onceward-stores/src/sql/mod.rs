//! Receipts in a table of the user's own database, next to the business tables.
//!
//! ```text
//! onceward_receipts   scope, key, operation: the id, and the primary key
//!                     id_high, id_middle, id_low   PostgreSQL: the id as numbers, the primary key there
//!                     state       waiting, held, done, unknown, dead, gone; free is a row that was just removed
//!                     open_state  PostgreSQL: a number for the state, which is indexed by it
//!                     version     grows with every write to the id
//!                     due         when the lease, the retention, the tombstone or a pause ends; by the database's
//!                                 clock
//!                     created, updated
//!                     receipt     the encoded receipt, see `codec.rs` of the engine
//! onceward_schema     the migrations that were applied, one row each
//! onceward_identity   PostgreSQL, MySQL: random bytes that entries of a volatile front are sealed with
//! ```
//!
//! **Versions.** A version is the database's clock in microseconds, or one more than the version before,
//! whichever is higher. The clock alone keeps two claims apart of which the first was rolled back. After a removal
//! the next version must be higher than the removed one, but a statement reads the clock a moment before it writes. So a record that is young when it is removed leaves a `free` row for two minutes, longer than any
//! statement of this crate may run, and a claim of the id meanwhile counts on from its version. Scans and loads do not see
//! free rows.
//!
//! **Steps.** A step has the scope and the key of its intent, and an operation that begins with its intent's. In the
//! order of the primary key it comes right after it, so the steps of an intent need no column and no index.
//!
//! **Unreadable rows.** A row that this version cannot read (a state of a later version, an invalid version
//! number) fails only its own id. The others in the same batch, load or page are answered as usual.
//!
//! **Order.** Every statement takes its rows in the order of their ids, and each kind of swap is a
//! transaction of its own; so batches cannot deadlock.
//!
//! | file | idea |
//! |---|---|
//! | `batch_answers.rs` | the answers to a batch, collected from its statements |
//! | `error_text.rs` | errors of drivers with their cause in the text |
//! | `first_statement.rs` | transactions that send a statement of the caller's together with their beginning |
//! | `identity.rs` | the random bytes that tell a database from its restored copies |
//! | `idempotent_writes/` | writes that need no receipt: changes of state, rows by business key, versions |
//! | `join.rs` | a receipt in a transaction that the caller holds, whatever its driver |
//! | `swap_kinds.rs` | a batch, sorted and split by kind of swap |
//! | `row.rs` | conversion between rows and records |
//! | `schema.rs` | which migrations a database has had, and which it needs |
//! | `text_cursor.rs` | cursors of scans in the order of texts |
//! | `transactions.rs` | transactions from a pool, for any driver that takes one statement after the other |
//! | `postgres/`, `sqlite/`, `mysql/` | one dialect each |
//! | `sqlx/` | transactions and pools of sqlx, in each dialect |

#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "not every dialect needs all that they share")
)]

mod batch_answers;
mod error_text;
mod first_statement;
mod idempotent_writes;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod identity;
mod join;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
mod row;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
pub mod sqlx;
mod swap_kinds;
mod text_cursor;
mod transactions;

use std::time::Duration;

#[cfg(any(feature = "mysql", feature = "postgres"))]
#[doc(hidden)]
pub use error_text::named;
pub use first_statement::{BeginFuture, Begun, SqlTransactions};
pub use idempotent_writes::{
    Change, EffectFn, If, Inserted, Machine, MachineBuilder, Moved, Reason, States, TagColumn, Transition,
    Upserted, Versioned, Written, insert, transition, upsert, versioned,
};
pub use join::{AnyTransaction, Cell, Dialect, InTransaction, SqlTransaction, Value};
pub use schema::{Migrated, Migrations};
pub use transactions::{PooledTransactions, TransactionDriver};

/// How long the version of a record is kept if the record was young when it was removed. Longer than any statement may
/// run.
const FREE_GRACE: Duration = Duration::from_secs(120);
/// No call may take longer than this, whatever the options say; see [`FREE_GRACE`].
const CALL_MAX: Duration = Duration::from_secs(60);
/// Bytes of receipts in one page of a scan; a page always has at least one record.
const PAGE_BYTES_MAX: i64 = 16 << 20;
/// Free rows removed in one go.
const PURGE_ROWS_MAX: i64 = 1_000;
/// How many times a deadlock or a serialization failure is retried.
const TRIES_MAX: usize = 10;

/// How to use a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Sets how many connections the store has.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how long one call may take, from 10 ms to a minute.
    pub fn with_call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    /// Sets whether opening brings the tables up to date.
    pub fn with_migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    fn call_timeout(&self) -> Duration {
        self.call_timeout.clamp(Duration::from_millis(10), CALL_MAX)
    }
}
