//! The identity of a database of PostgreSQL: the random bytes in its table, and which server, timeline, database and
//! table it is. A restored or promoted server has another one by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool_postgres::Pool;
use onceward::{IdentitySource, Result, StoreFuture, StoreIdentity};
use tokio_postgres::Client;

use super::errors::{CallEffect, failed, unconnected};
use crate::sql::identity::{FreshIdentity, identity, missing};

const READ: &str = "SELECT identity, seal_key, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
    current_database()::text || ' ' || to_regclass('onceward_identity')::oid::text FROM onceward_identity";
/// The timeline is that of what is being written now: the one in the control file is of the last checkpoint.
const SERVER: &str = "SELECT system_identifier::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system()";
const RENEW: &str = "INSERT INTO onceward_identity (identity, seal_key) VALUES ($1, $2)
    ON CONFLICT (one) DO UPDATE SET identity = excluded.identity, seal_key = excluded.seal_key,
    renewed = clock_timestamp()";
/// What a migration writes.
pub(super) const MAKE: &str =
    "INSERT INTO onceward_identity (identity, seal_key) VALUES ($1, $2) ON CONFLICT (one) DO NOTHING";

/// Reads the identity through the connections of a store.
pub(super) struct PostgresIdentity {
    pub(super) pool: Pool,
    pub(super) server: String,
    /// How many connections the pool has opened.
    pub(super) opened: Arc<AtomicU64>,
}

impl IdentitySource for PostgresIdentity {
    fn read(&self) -> StoreFuture<'_, StoreIdentity> {
        Box::pin(async {
            let connection = self.pool.get().await.map_err(|error| unconnected(&self.server, error))?;
            let reads = |error| failed(CallEffect::Reads, error);
            let statement = connection.prepare_cached(READ).await.map_err(reads)?;
            let row = connection.query_opt(&statement, &[]).await.map_err(reads)?.ok_or_else(missing)?;
            // Some managed services do not say; a restored copy there is told apart by the database and the table.
            let server = match connection.prepare_cached(SERVER).await {
                Ok(statement) => connection.query_one(&statement, &[]).await.ok(),
                Err(_) => None,
            };
            let server: String = server.map(|row| row.get(0)).unwrap_or_default();
            let (random, seal_key, now_us, database): (Vec<u8>, Vec<u8>, i64, String) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            identity(&random, &seal_key, now_us, &format!("{server} {database}"))
        })
    }

    fn epoch(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Replaces the random bytes. All entries of fronts are then foreign.
pub(super) async fn renew(client: &Client) -> Result<()> {
    let FreshIdentity { identity, seal_key } = FreshIdentity::new()?;
    let renewed = client.execute(RENEW, &[&&identity[..], &&seal_key[..]]).await;
    renewed.map(drop).map_err(|error| failed(CallEffect::Writes, error))
}
