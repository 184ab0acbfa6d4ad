//! The tables: found, checked, and brought up to date.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use onceward::{Error, ErrorKind, Result};

use super::fault::{Call, failed};
use crate::sql::schema::{Migrated, Migrations, Present, applied, foreign, missing};

/// Every migration there ever was, in order. None of them is ever edited.
const MIGRATIONS: &[&str] = &[include_str!("0001.sql")];
/// `JSON_TABLE` is what both have from here on.
const MARIADB_MIN: (u16, u16) = (10, 6);
const MYSQL_MIN: (u16, u16) = (8, 0);
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
        apply(conn, known).await.map_err(|error| failed(Call::Writes, error))?;
    }
    let columns = "SELECT scope, operation, `key`, state, version, due, created, updated, receipt, writer
        FROM onceward_receipts LIMIT 0";
    conn.query_drop(columns).await.map_err(|error| failed(Call::Reads, error))?;
    Ok(Migrated { from, to: known })
}

async fn check_server(conn: &mut Conn) -> Result<()> {
    let version: Option<String> =
        conn.query_first("SELECT VERSION()").await.map_err(|error| failed(Call::Reads, error))?;
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

async fn present(conn: &mut Conn) -> Result<Present> {
    let find = "SELECT table_name FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name IN ('onceward_receipts', 'onceward_schema')";
    let tables: Vec<String> = conn.query(find).await.map_err(|error| failed(Call::Reads, error))?;
    let receipts = tables.iter().any(|table| table == "onceward_receipts");
    if !tables.iter().any(|table| table == "onceward_schema") {
        return Ok(Present { receipts, schema: None });
    }
    let last = conn.query_first("SELECT COALESCE(MAX(version), 0) FROM onceward_schema").await;
    let last: Option<u32> = last.map_err(|_| {
        foreign("there is a table `onceward_schema` that was not made by onceward; use another database")
    })?;
    Ok(Present { receipts, schema: Some(last.unwrap_or(0)) })
}

/// Applies what is missing, one process at a time. These servers commit each change of a table by itself,
/// so each migration is one statement.
async fn apply(conn: &mut Conn, known: u32) -> mysql_async::Result<()> {
    let _: Option<i64> = conn.exec_first("SELECT GET_LOCK('onceward_migrate', ?)", (LOCK_MAX_S,)).await?;
    conn.query_drop(
        "CREATE TABLE IF NOT EXISTS onceward_schema (version INT PRIMARY KEY,
            applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB",
    )
    .await?;
    let last: Option<u32> = conn.query_first("SELECT COALESCE(MAX(version), 0) FROM onceward_schema").await?;
    for number in last.unwrap_or(0) + 1..=known {
        conn.query_drop(MIGRATIONS[number as usize - 1]).await?;
        conn.exec_drop("INSERT INTO onceward_schema (version) VALUES (?)", (number,)).await?;
    }
    let _: Option<i64> = conn.query_first("SELECT RELEASE_LOCK('onceward_migrate')").await?;
    Ok(())
}
