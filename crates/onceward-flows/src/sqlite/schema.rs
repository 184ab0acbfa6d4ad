//! Finds, checks and migrates the tables for messages.

use onceward::Result;
use onceward_stores::rusqlite::{self, Connection, OptionalExtension, TransactionBehavior};
use onceward_stores::sql::Migrations;
use onceward_stores::sql::sqlite::failed;

use crate::tables::{Migrated, check_migrations};

/// All migrations, in order. A released migration is never edited.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
const LAST: &str = "SELECT coalesce(max(version), 0) FROM onceward_flows_schema";

pub(super) fn prepare(connection: &mut Connection, migrations: Migrations) -> Result<Migrated> {
    let exists = |name: &str| {
        let find = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        let found = connection.query_row(find, [name], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(failed)
    };
    let from = match (exists("onceward_flows_schema")?, exists("onceward_outbox")?) {
        (true, _) => Some(connection.query_row(LAST, [], |row| row.get(0)).map_err(failed)?),
        (false, true) => None,
        (false, false) => Some(0),
    };
    let migrated = check_migrations(from, MIGRATIONS.len(), migrations)?;
    if migrated.from < migrated.to {
        apply(connection).map_err(failed)?;
    }
    Ok(migrated)
}

/// Applies what is missing, in one transaction, one process at a time.
fn apply(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS onceward_flows_schema (
            version INTEGER PRIMARY KEY, applied TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT",
    )?;
    // Another process may have migrated while this one waited.
    let last: i64 = transaction.query_row(LAST, [], |row| row.get(0))?;
    for (migration, number) in MIGRATIONS.iter().zip(1_i64..).filter(|(_, number)| *number > last) {
        transaction.execute_batch(migration)?;
        transaction.execute("INSERT INTO onceward_flows_schema (version) VALUES (?1)", [number])?;
    }
    transaction.commit()
}
