//! Finds, checks and migrates the tables for messages. They have their own table of migrations beside that of the
//! receipts, because either can be used without the other.

use onceward::{Error, ErrorKind, Result};
use onceward_stores::sql::Migrations;
use tokio_postgres::Client;

use super::errors::{Call, failed};
use crate::tables::{Migrated, check_migrations};

/// All migrations, in order. A released migration is never edited.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
/// Serializes migrations of several processes; an arbitrary, unique number.
const LOCK: i64 = 0x6f6e_6365_666c_6f77;
/// The oldest that knows every setting of the tables.
const SERVER_VERSION_MIN: i32 = 13_00_00;
const LAST: &str = "SELECT coalesce(max(version), 0)::int FROM onceward_flows_schema";

pub(super) async fn prepare(client: &mut Client, migrations: Migrations) -> Result<Migrated> {
    let read = |error| failed(Call::Reads, error);
    let server =
        "SELECT current_setting('server_version_num')::int, to_regclass('onceward_flows_schema') IS NOT NULL,
        to_regclass('onceward_outbox') IS NOT NULL";
    let row = client.query_one(server, &[]).await.map_err(read)?;
    let (version, schema, outbox): (i32, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if version < SERVER_VERSION_MIN {
        let (version, min) = (version / 10_000, SERVER_VERSION_MIN / 10_000);
        let detail = format!("this PostgreSQL is version {version}, at least {min} is needed");
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    let from = match (schema, outbox) {
        (true, _) => Some(client.query_one(LAST, &[]).await.map_err(read)?.get::<_, i32>(0).unsigned_abs()),
        (false, true) => None,
        (false, false) => Some(0),
    };
    let migrated = check_migrations(from, MIGRATIONS.len(), migrations)?;
    if migrated.from < migrated.to {
        apply(client).await.map_err(|error| failed(Call::Writes, error))?;
    }
    check_sequence(client).await?;
    Ok(migrated)
}

/// Applies what is missing, in one transaction, one process at a time.
async fn apply(client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let table = "SET LOCAL lock_timeout = '10s';
        CREATE TABLE IF NOT EXISTS onceward_flows_schema (
            version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())";
    transaction.batch_execute(table).await?;
    // Another process may have migrated while this one waited.
    let last = transaction.query_one(LAST, &[]).await?.get::<_, i32>(0);
    for (migration, number) in MIGRATIONS.iter().zip(1_i32..).filter(|(_, number)| *number > last) {
        transaction.batch_execute(migration).await?;
        transaction.execute("INSERT INTO onceward_flows_schema (version) VALUES ($1)", &[&number]).await?;
    }
    transaction.commit().await
}

/// A sequence that caches numbers per session would put them out of the order of the commits.
async fn check_sequence(client: &Client) -> Result<()> {
    let cache = "SELECT seqcache FROM pg_sequence
        WHERE seqrelid = pg_get_serial_sequence('onceward_outbox', 'position')::regclass";
    let row = client.query_one(cache, &[]).await.map_err(|error| failed(Call::Reads, error))?;
    if row.get::<_, i64>(0) != 1 {
        return Err(foreign(
            "the sequence of onceward_outbox caches numbers, which breaks the order of messages; \
             ALTER TABLE onceward_outbox ALTER position SET CACHE 1",
        ));
    }
    Ok(())
}

fn foreign(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Foreign, detail)
}
