#![doc = include_str!("../README.md")]

use std::sync::Arc;

use onceward::{Clock, Error, ErrorKind, Result, Store};

#[cfg(feature = "embedded")]
pub mod embedded;
pub mod memory;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub mod sql;

#[cfg(feature = "embedded")]
pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;
#[cfg(feature = "mysql")]
pub use sql::mysql::MySqlStore;
#[cfg(feature = "postgres")]
pub use sql::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteStore;

/// Opens the store that an address names: `memory:`, `embedded:./data`, ….
///
/// Dropping the future leaves the opening to finish by itself; what it opened is closed again.
#[cfg_attr(
    not(any(feature = "embedded", feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(clippy::unused_async, reason = "waits in other builds")
)]
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryStore::new())),
        "memory" => {
            Err(Error::new(ErrorKind::Invalid, format!("`memory:` takes nothing behind it, not `{rest}`")))
        }
        "embedded" if rest.is_empty() => Err(Error::new(
            ErrorKind::Invalid,
            "`embedded:` needs a folder behind it, as in `embedded:./data`",
        )),
        #[cfg(feature = "embedded")]
        "embedded" => Ok(Arc::new(EmbeddedStore::open(rest, embedded::Options::default()).await?)),
        #[cfg(not(feature = "embedded"))]
        "embedded" => Err(feature_off("embedded", "embedded")),
        #[cfg(feature = "mysql")]
        "mysql" => Ok(Arc::new(MySqlStore::open(url, sql::Options::default()).await?)),
        #[cfg(not(feature = "mysql"))]
        "mysql" => Err(feature_off("mysql", "mysql")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(PostgresStore::open(url, sql::Options::default()).await?)),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(feature_off(scheme, "postgres")),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(SqliteStore::open(rest, sql::Options::default()).await?)),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(feature_off("sqlite", "sqlite")),
        _ => Err(Error::new(
            ErrorKind::Invalid,
            format!("no store is known as `{scheme}:`; this build opens {}", KNOWN.join(", ")),
        )),
    }
}

/// Brings the tables behind an address up to date, and says what was done. For databases only; the others
/// have no tables.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub async fn migrate(url: &str) -> Result<sql::Migrated> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let _ = rest;
    match scheme {
        #[cfg(feature = "mysql")]
        "mysql" => MySqlStore::migrate(url).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => PostgresStore::migrate(url).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => SqliteStore::migrate(rest).await,
        _ => Err(Error::new(
            ErrorKind::Invalid,
            format!("`{scheme}:` has no tables to migrate; this build knows {}", KNOWN.join(", ")),
        )),
    }
}

/// Times beyond this are taken for this: versions start from the clock and must be able to grow from
/// wherever it has been.
const NOW_US_MAX: u64 = 1 << 62;
/// One page of a scan looks at no more records than this, whatever it is asked for.
const SCAN_RECORDS_MAX: usize = 10_000;

fn now_us(clock: &dyn Clock) -> u64 {
    clock.now_us().min(NOW_US_MAX)
}

/// The forms of address that this build can open.
const KNOWN: &[&str] = &[
    "memory:",
    #[cfg(feature = "embedded")]
    "embedded:PATH",
    #[cfg(feature = "mysql")]
    "mysql://USER@HOST/DATABASE",
    #[cfg(feature = "postgres")]
    "postgres://USER@HOST/DATABASE",
    #[cfg(feature = "sqlite")]
    "sqlite:FILE",
];

#[cfg(not(all(feature = "embedded", feature = "mysql", feature = "postgres", feature = "sqlite")))]
fn feature_off(scheme: &str, feature: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!("`{scheme}:` is not part of this build; build it with the cargo feature `{feature}`"),
    )
}

/// The examples of the user's page, which are to compile.
#[cfg(all(doctest, feature = "postgres", feature = "sqlx-postgres"))]
#[doc = include_str!("../../../docs/transactions.md")]
mod transactions_page {}
