#![doc = include_str!("../README.md")]

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
mod kit;
pub mod memory;
mod open;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(any(
    feature = "dynamodb",
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
mod tls;

#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDbStore;
#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
pub use kit::groups::GroupCommits;
#[doc(hidden)]
pub use kit::steady_clock::clock_jumps;
pub use memory::{MemoryStore, MemoryTransactions, in_memory};
#[cfg(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use open::migrate;
pub use open::{AddressForm, Opened, address_forms, open, open_with_metrics, renew_identity};
#[cfg(feature = "redis")]
pub use redis::{RedisFront, RedisStore};
#[cfg(feature = "mysql")]
pub use sql::mysql::MySqlStore;
#[cfg(feature = "postgres")]
pub use sql::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteStore;

// The drivers whose types are in signatures here, in the versions that fit.
#[cfg(feature = "dynamodb")]
pub use aws_sdk_dynamodb;
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

/// The examples of the user's page on stores.
#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../../../docs/stores.md")]
mod stores_page {}

/// The examples of the user's page on writes without a key.
#[cfg(all(doctest, any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
#[doc = include_str!("../../../docs/natural-idempotency.md")]
mod natural_idempotency_page {}
