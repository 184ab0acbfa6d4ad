#![doc = include_str!("../README.md")]

#[cfg(feature = "embedded")]
pub mod embedded;
mod kit;
pub mod memory;
mod open;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod tls;

#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
pub use kit::groups::Groups;
pub use kit::steady_clock::clock_leaps;
pub use memory::{MemoryStore, MemoryTransactions, in_memory};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use open::migrate;
pub use open::{AddressForm, Opened, address_forms, open, open_with_metrics};
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "mysql")]
pub use sql::mysql::MySqlStore;
#[cfg(feature = "postgres")]
pub use sql::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteStore;

// The drivers whose types are in signatures here, in the versions that fit.
#[cfg(feature = "postgres")]
pub use deadpool_postgres;
#[cfg(feature = "mysql")]
pub use mysql_async;
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(any(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
pub use sqlx;
#[cfg(feature = "postgres")]
pub use tokio_postgres;

/// What the SQL stores take from the kit.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[allow(unused_imports, reason = "each of them takes what it needs")]
use kit::{SCAN_RECORDS_MAX, now_us};

/// The examples of the user's page, which must compile.
#[cfg(all(doctest, feature = "postgres", feature = "sqlx-postgres"))]
#[doc = include_str!("../../../docs/transactions.md")]
mod transactions_page {}

/// The examples of the user's page on writes without a key.
#[cfg(all(doctest, any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
#[doc = include_str!("../../../docs/natural-idempotency.md")]
mod natural_idempotency_page {}
