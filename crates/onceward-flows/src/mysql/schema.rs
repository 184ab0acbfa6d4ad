//! Finds, checks and migrates the tables for messages. These servers commit each change of a table by itself, so every
//! statement of a migration may be repeated.

use onceward::{Error, ErrorKind, Result};
use onceward_stores::mysql_async::prelude::Queryable;
use onceward_stores::mysql_async::{self, Conn};
use onceward_stores::sql::Migrations;

use super::{read, written};
use crate::lane::LANES;
use crate::tables::{Migrated, check_migrations};

/// All migrations, in order. A released migration is never edited. Statements end with `;` at the end of a line.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
/// `JSON_TABLE` and `SKIP LOCKED` are what both have from here on.
const MARIADB_MIN: (u16, u16) = (10, 6);
const MYSQL_MIN: (u16, u16) = (8, 0);
/// How long one migration may wait for another, in seconds.
const LOCK_MAX_S: u32 = 30;
const LAST: &str = "SELECT COALESCE(MAX(version), 0) FROM onceward_flows_schema";

pub(super) async fn prepare(conn: &mut Conn, migrations: Migrations) -> Result<Migrated> {
    check_server(conn).await?;
    let find = "SELECT table_name FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name IN ('onceward_flows_schema', 'onceward_outbox')";
    let tables: Vec<String> = conn.query(find).await.map_err(read)?;
    let has = |name: &str| tables.iter().any(|table| table == name);
    let from = match (has("onceward_flows_schema"), has("onceward_outbox")) {
        (true, _) => conn.query_first(LAST).await.map_err(read)?,
        (false, true) => None,
        (false, false) => Some(0),
    };
    let migrated = check_migrations(from, MIGRATIONS.len(), migrations)?;
    if migrated.from < migrated.to {
        apply(conn).await?;
    }
    check_lanes(conn).await?;
    Ok(migrated)
}

async fn check_server(conn: &mut Conn) -> Result<()> {
    let version: Option<String> = conn.query_first("SELECT VERSION()").await.map_err(read)?;
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

/// Applies what is missing, one process at a time.
async fn apply(conn: &mut Conn) -> Result<()> {
    let lock = "SELECT GET_LOCK('onceward_migrate_flows', ?)";
    let locked: Option<Option<i64>> = conn.exec_first(lock, (LOCK_MAX_S,)).await.map_err(written)?;
    if locked.flatten() != Some(1) {
        let detail =
            "another process has been migrating this database for too long; try again, or look for it";
        return Err(Error::new(ErrorKind::Unavailable, detail));
    }
    apply_locked(conn).await.map_err(written)
}

async fn apply_locked(conn: &mut Conn) -> mysql_async::Result<()> {
    conn.query_drop(
        "CREATE TABLE IF NOT EXISTS onceward_flows_schema (version INT PRIMARY KEY,
            applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB",
    )
    .await?;
    // Another process may have migrated while this one waited.
    let last: u32 = conn.query_first(LAST).await?.unwrap_or(0);
    for (migration, number) in MIGRATIONS.iter().zip(1_u32..).filter(|(_, number)| *number > last) {
        for statement in migration.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            conn.query_drop(statement).await?;
        }
        if number == 1 {
            let lanes: Vec<String> = (0..LANES).map(|lane| format!("({lane}, 0)")).collect();
            conn.query_drop(format!(
                "INSERT IGNORE INTO onceward_lanes (lane, n) VALUES {}",
                lanes.join(", ")
            ))
            .await?;
        }
        conn.exec_drop("INSERT IGNORE INTO onceward_flows_schema (version) VALUES (?)", (number,)).await?;
    }
    conn.query_drop("DO RELEASE_LOCK('onceward_migrate_flows')").await
}

/// A lane without its row would have no positions, and no order.
async fn check_lanes(conn: &mut Conn) -> Result<()> {
    let count: Option<u32> = conn.query_first("SELECT COUNT(*) FROM onceward_lanes").await.map_err(read)?;
    if count != Some(LANES) {
        let detail = "rows of onceward_lanes are missing, which breaks the order of messages; restore the table from a copy";
        return Err(Error::new(ErrorKind::Damaged, detail));
    }
    Ok(())
}
