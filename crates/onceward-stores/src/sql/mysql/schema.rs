//! Finds, checks and migrates the tables.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as Cause};
use onceward::{Error, ErrorKind, Result};

use super::errors::{CallEffect, failed};
use super::identity;
use crate::sql::identity::FreshIdentity;
use crate::sql::schema::{FORMAT, FoundTables, Migrated, Migrations, SchemaTable, applied, missing};

/// All migrations, in order. A released migration is never edited. The statements of one are separated by semicolons, and
/// each can be repeated but the last: that one changes `onceward_receipts`, by which it is known that all were done.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
/// Detects a foreign table of the same name when the store is opened, not at the first claim.
const COLUMNS: &str = "SELECT scope, operation, `key`, state, version, due, created, updated, receipt, writer
    FROM onceward_receipts LIMIT 0";
const HAS_RECEIPTS: &str = "SELECT 1 FROM information_schema.tables
    WHERE table_schema = DATABASE() AND table_name = 'onceward_receipts'";
/// `JSON_TABLE` is what both have from here on.
const MARIADB_MIN: (u16, u16) = (10, 6);
const MYSQL_MIN: (u16, u16) = (8, 0);
/// The migration whose table has a first row.
const IDENTITY: u32 = 1;
/// How long one migration may wait for another, in seconds.
const LOCK_MAX_S: u32 = 30;

/// Makes sure that the tables are ours and up to date.
pub(super) async fn prepare(conn: &mut Conn, migrations: Migrations) -> Result<Migrated> {
    check_server(conn).await?;
    let known = u32::try_from(MIGRATIONS.len()).expect("there are few migrations");
    let from = applied(present(conn).await?, known)?;
    if from < known {
        if migrations == Migrations::Require {
            return Err(missing(from, known));
        }
        apply(conn, known).await?;
    }
    conn.query_drop(COLUMNS).await.map_err(|error| failed(CallEffect::Reads, error))?;
    Ok(Migrated { from, to: known })
}

async fn check_server(conn: &mut Conn) -> Result<()> {
    let version: Option<String> =
        conn.query_first("SELECT VERSION()").await.map_err(|error| failed(CallEffect::Reads, error))?;
    let version = version.unwrap_or_default();
    let (name, min) =
        if version.contains("MariaDB") { ("MariaDB", MARIADB_MIN) } else { ("MySQL", MYSQL_MIN) };
    let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < min {
        let detail = format!("this is {name} {version}, at least {}.{} is needed", min.0, min.1);
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    Ok(())
}

async fn present(conn: &mut Conn) -> Result<FoundTables> {
    let find = "SELECT table_name FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name IN ('onceward_receipts', 'onceward_schema')";
    let tables: Vec<String> = conn.query(find).await.map_err(|error| failed(CallEffect::Reads, error))?;
    let receipts = tables.iter().any(|table| table == "onceward_receipts");
    if !tables.iter().any(|table| table == "onceward_schema") {
        return Ok(FoundTables { receipts, schema: SchemaTable::Absent });
    }
    let columns = "SELECT column_name FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'onceward_schema'";
    let columns: Vec<String> = conn.query(columns).await.map_err(|error| failed(CallEffect::Reads, error))?;
    let has = |name: &str| columns.iter().any(|column| column == name);
    let schema = match (has("version"), has("format")) {
        (false, _) => SchemaTable::Foreign,
        (true, false) => SchemaTable::Unreleased,
        (true, true) => {
            let last = recorded(conn).await.map_err(|error| failed(CallEffect::Reads, error))?;
            if last == 0 && receipts && is_ours(conn).await {
                // Cut off before its entry: as if nothing were there, so that it is carried out.
                return Ok(FoundTables { receipts: false, schema: SchemaTable::Applied(0) });
            }
            SchemaTable::Applied(last)
        }
    };
    Ok(FoundTables { receipts, schema })
}

/// The last migration that has an entry.
async fn recorded(conn: &mut Conn) -> Result<u32, Cause> {
    let last: Option<u32> = conn.query_first("SELECT COALESCE(MAX(version), 0) FROM onceward_schema").await?;
    Ok(last.unwrap_or(0))
}

/// Whether the receipts are in a table that this store has made.
async fn is_ours(conn: &mut Conn) -> bool {
    conn.query_drop(COLUMNS).await.is_ok()
}

/// The last migration whose statements were executed. These servers commit each change of a table by itself, so the first
/// one may have been cut off between its tables and its entry; then the tables are ours all the same.
async fn last(conn: &mut Conn, receipts: bool) -> Result<u32, Cause> {
    match recorded(conn).await? {
        0 if receipts && is_ours(conn).await => Ok(1),
        last => Ok(last),
    }
}

/// Applies what is missing, one process at a time.
async fn apply(conn: &mut Conn, known: u32) -> Result<()> {
    let refused = |error| failed(CallEffect::Writes, error);
    let fresh = FreshIdentity::new()?;
    let locked: Option<Option<i64>> =
        conn.exec_first("SELECT GET_LOCK('onceward_migrate', ?)", (LOCK_MAX_S,)).await.map_err(refused)?;
    if locked.flatten() != Some(1) {
        let detail =
            "another process has been migrating this database for too long; try again, or look for it";
        return Err(Error::new(ErrorKind::Unavailable, detail));
    }
    let run = async |conn: &mut Conn| {
        conn.query_drop(
            "CREATE TABLE IF NOT EXISTS onceward_schema (version INT PRIMARY KEY, format INT NOT NULL,
                applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB",
        )
        .await?;
        // Another process may have migrated while this one waited.
        let receipts: Option<u8> = conn.query_first(HAS_RECEIPTS).await?;
        let last = last(conn, receipts.is_some()).await?;
        for number in 1..=known {
            if number > last {
                for statement in MIGRATIONS[number as usize - 1].split(';') {
                    conn.query_drop(statement).await?;
                }
            }
            if number == IDENTITY {
                identity::make(conn, &fresh).await?;
            }
            let applied = "INSERT IGNORE INTO onceward_schema (version, format) VALUES (?, ?)";
            conn.exec_drop(applied, (number, FORMAT)).await?;
        }
        conn.query_drop("DO RELEASE_LOCK('onceward_migrate')").await
    };
    run(conn).await.map_err(refused)
}
