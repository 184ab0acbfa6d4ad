//! Finds, checks and migrates the tables.

use onceward::{Error, ErrorKind, Result};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior};

use super::errors::failed;
use crate::sql::schema::{FORMAT, FoundTables, Migrated, Migrations, SchemaTable, applied, missing};

/// All migrations, in order. A released migration is never edited.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql"), include_str!("0002.sql")];
/// The last migration that was applied.
const LAST: &str = "SELECT coalesce(max(version), 0) FROM onceward_schema";

/// Makes sure that the tables are ours and up to date.
pub(super) fn prepare(connection: &mut Connection, migrations: Migrations) -> Result<Migrated> {
    let known = u32::try_from(MIGRATIONS.len()).expect("there are few migrations");
    let from = applied(present(connection)?, known)?;
    if from < known {
        if migrations == Migrations::Require {
            return Err(missing(from, known));
        }
        apply(connection, known).map_err(failed)?;
    }
    let columns = "SELECT scope, operation, key, state, version, due, created, updated, receipt
        FROM onceward_receipts LIMIT 0";
    let looked = connection.prepare(columns).map(drop);
    looked.map_err(other)?;
    Ok(Migrated { from, to: known })
}

fn present(connection: &Connection) -> Result<FoundTables> {
    let exists = |name: &str| {
        let find = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        let found = connection.query_row(find, [name], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(failed)
    };
    let receipts = exists("onceward_receipts")?;
    if !exists("onceward_schema")? {
        return Ok(FoundTables { receipts, schema: SchemaTable::Absent });
    }
    let has = |column: &str| {
        let find = "SELECT 1 FROM pragma_table_info('onceward_schema') WHERE name = ?1";
        let found = connection.query_row(find, [column], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(failed)
    };
    let schema = match (has("version")?, has("format")?) {
        (false, _) => SchemaTable::Foreign,
        (true, false) => SchemaTable::Unreleased,
        (true, true) => {
            SchemaTable::Applied(connection.query_row(LAST, [], |row| row.get(0)).map_err(failed)?)
        }
    };
    Ok(FoundTables { receipts, schema })
}

/// Applies what is missing, in one transaction, one process at a time.
fn apply(connection: &mut Connection, known: u32) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS onceward_schema (
            version INTEGER PRIMARY KEY, format INTEGER NOT NULL,
            applied TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT",
    )?;
    // Another process may have migrated while this one waited.
    let last: u32 = transaction.query_row(LAST, [], |row| row.get(0))?;
    for number in last + 1..=known {
        transaction.execute_batch(MIGRATIONS[number as usize - 1])?;
        let applied = "INSERT INTO onceward_schema (version, format) VALUES (?1, ?2)";
        transaction.execute(applied, (number, FORMAT))?;
    }
    transaction.commit()
}

/// A statement that does not fit the table means that the table is not ours. Anything else is what it is: a
/// damaged or locked file is not foreign.
fn other(error: rusqlite::Error) -> Error {
    let detail = "the table `onceward_receipts` has other columns than onceward's; use another file";
    match error.sqlite_error_code() {
        Some(ErrorCode::Unknown) | None => Error::new(ErrorKind::Foreign, detail),
        Some(_) => failed(error),
    }
}
