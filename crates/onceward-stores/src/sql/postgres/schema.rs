//! Finds, checks and migrates the tables.

use onceward::{Error, ErrorKind, Result};
use tokio_postgres::Client;

use super::errors::{CallEffect, failed};
use super::identity::MAKE;
use crate::sql::identity::FreshIdentity;
use crate::sql::schema::{FORMAT, FoundTables, Migrated, Migrations, SchemaTable, applied, missing};

/// All migrations, in order. A released migration is never edited.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
/// Serializes migrations of several processes; an arbitrary, unique number.
const LOCK: i64 = 0x6f6e_6365_7761_7264;
/// The oldest that knows every setting of the table.
const SERVER_VERSION_MIN: i32 = 13_00_00;
/// The last migration that was applied.
const LAST: &str = "SELECT coalesce(max(version), 0)::int FROM onceward_schema";

/// Makes sure that the tables are ours and up to date.
pub(super) async fn prepare(client: &mut Client, migrations: Migrations) -> Result<Migrated> {
    check_server(client).await?;
    let known = u32::try_from(MIGRATIONS.len()).expect("there are few migrations");
    let from = applied(present(client).await?, known)?;
    if from < known {
        if migrations == Migrations::Require {
            return Err(missing(from, known));
        }
        apply(client, known).await?;
    }
    check_columns(client).await?;
    Ok(Migrated { from, to: known })
}

async fn check_server(client: &Client) -> Result<()> {
    let row = client.query_one("SELECT current_setting('server_version_num')::int", &[]).await;
    let version: i32 = row.map_err(|error| failed(CallEffect::Reads, error))?.get(0);
    if version < SERVER_VERSION_MIN {
        let detail = format!(
            "this PostgreSQL is version {}, at least {} is needed",
            version / 10_000,
            SERVER_VERSION_MIN / 10_000
        );
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    Ok(())
}

async fn present(client: &Client) -> Result<FoundTables> {
    let found =
        "SELECT to_regclass('onceward_receipts') IS NOT NULL, to_regclass('onceward_schema') IS NOT NULL";
    let row = client.query_one(found, &[]).await.map_err(|error| failed(CallEffect::Reads, error))?;
    let (receipts, schema): (bool, bool) = (row.get(0), row.get(1));
    if !schema {
        return Ok(FoundTables { receipts, schema: SchemaTable::Absent });
    }
    let columns = "SELECT attname::text FROM pg_attribute
        WHERE attrelid = to_regclass('onceward_schema') AND attnum > 0 AND NOT attisdropped";
    let columns = client.query(columns, &[]).await.map_err(|error| failed(CallEffect::Reads, error))?;
    let has = |name: &str| columns.iter().any(|column| column.get::<_, &str>(0) == name);
    let schema = match (has("version"), has("format")) {
        (false, _) => SchemaTable::Foreign,
        (true, false) => SchemaTable::Unreleased,
        (true, true) => {
            let row = client.query_one(LAST, &[]).await.map_err(|error| failed(CallEffect::Reads, error))?;
            SchemaTable::Applied(row.get::<_, i32>(0).unsigned_abs())
        }
    };
    Ok(FoundTables { receipts, schema })
}

/// Applies what is missing, in one transaction, one process at a time.
async fn apply(client: &mut Client, known: u32) -> Result<()> {
    let fresh = FreshIdentity::new()?;
    let run = async |client: &mut Client| {
        let transaction = client.transaction().await?;
        // An index over many receipts takes longer than any other statement may.
        transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        transaction
            .batch_execute(
                // A waiting table lock blocks all later statements on the table, so this wait is short.
                "SET LOCAL lock_timeout = '10s';
                CREATE TABLE IF NOT EXISTS onceward_schema (
                    version int PRIMARY KEY, format int NOT NULL,
                    applied timestamptz NOT NULL DEFAULT clock_timestamp())",
            )
            .await?;
        // Another process may have migrated while this one waited.
        let last = transaction.query_one(LAST, &[]).await?.get::<_, i32>(0).unsigned_abs();
        for number in last + 1..=known {
            transaction.batch_execute(MIGRATIONS[number as usize - 1]).await?;
            let number = i32::try_from(number).expect("there are few migrations");
            let applied = "INSERT INTO onceward_schema (version, format) VALUES ($1, $2)";
            transaction.execute(applied, &[&number, &FORMAT]).await?;
        }
        transaction.execute(MAKE, &[&&fresh.identity[..], &&fresh.seal_key[..]]).await?;
        transaction.commit().await
    };
    run(client).await.map_err(|error| failed(CallEffect::Writes, error))
}

/// Detects a foreign table of the same name when the store is opened, not at the first claim.
async fn check_columns(client: &Client) -> Result<()> {
    let columns =
        "SELECT id_high, id_middle, id_low, scope, operation, key, state, open_state, version, due, created, updated,
            receipt FROM onceward_receipts LIMIT 0";
    client.batch_execute(columns).await.map_err(|error| failed(CallEffect::Reads, error))
}
