//! The identity of a database of MySQL or MariaDB: the random bytes in its table, and the name of the database.

use std::sync::atomic::Ordering;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Pool};
use onceward::{IdentitySource, Result, StoreFuture, StoreIdentity};

use super::errors::{CallEffect, failed, unconnected};
use crate::sql::identity::{FreshIdentity, identity, missing};

const READ: &str =
    "SELECT identity, seal_key, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), DATABASE()
    FROM onceward_identity";
const RENEW: &str = "REPLACE INTO onceward_identity (one, identity, seal_key) VALUES (1, ?, ?)";
/// What a migration writes.
const MAKE: &str = "INSERT IGNORE INTO onceward_identity (one, identity, seal_key) VALUES (1, ?, ?)";

/// Reads the identity through the connections of a store.
pub(super) struct MySqlIdentity {
    pub(super) pool: Pool,
    pub(super) server: String,
}

impl IdentitySource for MySqlIdentity {
    fn read(&self) -> StoreFuture<'_, StoreIdentity> {
        Box::pin(async {
            let mut conn = self.pool.get_conn().await.map_err(|error| unconnected(&self.server, error))?;
            let row: Option<(Vec<u8>, Vec<u8>, i64, String)> =
                conn.query_first(READ).await.map_err(|error| failed(CallEffect::Reads, error))?;
            conn.reset_connection(false);
            let (random, seal_key, now_us, database) = row.ok_or_else(missing)?;
            identity(&random, &seal_key, now_us, &database)
        })
    }

    /// The number of connections that the pool has opened, or tried to: those it has, and those it has given up. One that
    /// was idle for long is given up without being counted; then the number is another one until the next is opened.
    fn epoch(&self) -> u64 {
        let metrics = self.pool.metrics();
        let counts = [
            &metrics.connection_count,
            &metrics.create_failed,
            &metrics.discarded_superfluous_connection,
            &metrics.discarded_unestablished_connection,
            &metrics.discarded_expired_connection,
            &metrics.discarded_error_during_cleanup,
        ];
        counts.iter().map(|count| count.load(Ordering::Relaxed) as u64).sum()
    }
}

/// Writes the first random bytes.
pub(super) async fn make(conn: &mut Conn, fresh: &FreshIdentity) -> mysql_async::Result<()> {
    conn.exec_drop(MAKE, (&fresh.identity[..], &fresh.seal_key[..])).await
}

/// Replaces the random bytes. All entries of fronts are then foreign.
pub(super) async fn renew(conn: &mut Conn) -> Result<()> {
    let fresh = FreshIdentity::new()?;
    let renewed = conn.exec_drop(RENEW, (&fresh.identity[..], &fresh.seal_key[..])).await;
    renewed.map_err(|error| failed(CallEffect::Writes, error))
}
