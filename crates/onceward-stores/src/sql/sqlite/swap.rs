//! One swap inside a transaction that has the write lock: of the store, or of the caller's own.

use onceward::{Found, Result, Seen, Swap, Swapped, SystemClock};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::failed;
use crate::now_us;
use crate::sql::kinds::columns;
use crate::sql::row::{self, due_us};

/// Swaps one record. The transaction must have the write lock, and must be rolled back on an error.
pub(crate) fn swap_in(connection: &Connection, swap: &Swap) -> Result<Swapped> {
    let now = clock_us();
    let found = find(connection, swap, now)?;
    let as_seen = match (swap.seen, &found) {
        (Seen::Absent, None) => true,
        (Seen::Version(version), Some(found)) => found.version == version,
        _ => false,
    };
    if !as_seen {
        return Ok(Swapped::Lost(found));
    }
    write(connection, swap, now).map_err(failed).and_then(|version| Ok(Swapped::Won(row::version(version)?)))
}

/// The machine's clock, as SQLite can count.
pub(super) fn clock_us() -> i64 {
    i64::try_from(now_us(&SystemClock)).unwrap_or(i64::MAX)
}

fn write(connection: &Connection, swap: &Swap, now: i64) -> rusqlite::Result<i64> {
    let (scope, operation, key) = columns(&swap.id);
    let version: i64 = connection
        .prepare_cached(
            "UPDATE onceward_version SET version_max = max(version_max + 1, ?1) RETURNING version_max",
        )?
        .query_row([now], |row| row.get(0))?;
    match &swap.new {
        Some(record) => {
            let due = due_us(record).map(|due| now.saturating_add(due));
            let statement = match swap.seen {
                Seen::Absent => {
                    "INSERT INTO onceward_receipts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)"
                }
                Seen::Version(_) => {
                    "UPDATE onceward_receipts SET state = ?4, version = ?5, due = ?6, updated = ?7, receipt = ?8
                     WHERE scope = ?1 AND operation = ?2 AND key = ?3"
                }
            };
            connection.prepare_cached(statement)?.execute(params![
                scope,
                operation,
                key,
                record.state.name(),
                version,
                due,
                now,
                &record.bytes[..]
            ])?;
        }
        None => {
            connection
                .prepare_cached(
                    "DELETE FROM onceward_receipts WHERE scope = ?1 AND operation = ?2 AND key = ?3",
                )?
                .execute([scope, operation, key])?;
        }
    }
    Ok(version)
}

fn find(connection: &Connection, swap: &Swap, now: i64) -> Result<Option<Found>> {
    load(connection, columns(&swap.id), now)
}

/// A record by its id.
pub(super) fn load(
    connection: &Connection,
    (scope, operation, key): (&str, &str, &str),
    now: i64,
) -> Result<Option<Found>> {
    let find = "SELECT version, state, due, receipt FROM onceward_receipts
        WHERE scope = ?1 AND operation = ?2 AND key = ?3";
    let mut statement = connection.prepare_cached(find).map_err(failed)?;
    let found = statement.query_row([scope, operation, key], |row| Ok(found(row, now)));
    found.optional().map_err(failed)?.transpose()
}

/// From the columns version, state, due, receipt.
pub(super) fn found(row: &Row<'_>, now: i64) -> Result<Found> {
    let columns = || -> rusqlite::Result<(i64, String, Option<i64>, Vec<u8>)> {
        let receipt = match row.get_ref(3)? {
            ValueRef::Blob(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, receipt))
    };
    let (version, state, due, receipt) = columns().map_err(row::damaged)?;
    row::found(version, &state, due.map(|due| due.saturating_sub(now)), receipt)
}
