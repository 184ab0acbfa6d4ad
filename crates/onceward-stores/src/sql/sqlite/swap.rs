//! Swaps inside a transaction that has the write lock, of the store or of the caller.

use onceward::{Found, Loaded, Result, Seen, Swap, Swapped};
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::errors::failed;
use super::now::Now;
use crate::sql::join::{Cell, Cells, Dialect, SqlTransaction, Value};
use crate::sql::row::{self, due_us};
use crate::sql::swap_kinds::columns;

/// Swaps one record. The transaction must have the write lock, and must be rolled back on an error.
pub(super) fn swap_now(connection: &Connection, swap: &Swap) -> Result<Swapped> {
    let now = Now::read();
    let found = match load(connection, columns(&swap.id), now.earliest_us)? {
        Ok(found) => found,
        Err(error) => return Ok(Swapped::Failed(error)),
    };
    if !is_as_seen(swap.seen, found.as_ref()) {
        return Ok(Swapped::Lost(found));
    }
    write(connection, swap, now).map_err(failed).and_then(|version| Ok(Swapped::Won(row::version(version)?)))
}

fn write(connection: &Connection, swap: &Swap, clock: Now) -> rusqlite::Result<i64> {
    let (scope, operation, key) = columns(&swap.id);
    let now = clock.latest_us;
    let (version, seen): (i64, i64) =
        connection.prepare_cached(NEXT_VERSION)?.query_row([now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some((seen, is_distrusted)) = clock.to_record(seen) {
        connection.prepare_cached(RECORD_TIME)?.execute(params![seen, is_distrusted])?;
    }
    let Some(record) = &swap.new else {
        connection.prepare_cached(REMOVE)?.execute([scope, operation, key])?;
        return Ok(version);
    };
    let due = due_us(record).map(|due| now.saturating_add(due));
    connection.prepare_cached(statement(swap.seen))?.execute(params![
        scope,
        operation,
        key,
        record.state.name(),
        version,
        due,
        now,
        &record.bytes[..]
    ])?;
    Ok(version)
}

/// The statement that writes a record.
fn statement(seen: Seen) -> &'static str {
    match seen {
        Seen::Absent => INSERT,
        Seen::Version(_) => UPDATE,
    }
}

/// And the time that was recorded last.
const NEXT_VERSION: &str = "UPDATE onceward_version SET version_max = max(version_max + 1, ?1)
    RETURNING version_max, (SELECT seen FROM onceward_clock)";
/// The clock stays distrusted while it is (?2).
const RECORD_TIME: &str =
    "UPDATE onceward_clock SET seen = ?1, distrusted = iif(?2, distrusted, NULL) WHERE seen < ?1";
const INSERT: &str = "INSERT INTO onceward_receipts
    (scope, operation, key, state, version, due, created, updated, receipt)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)";
const UPDATE: &str =
    "UPDATE onceward_receipts SET state = ?4, version = ?5, due = ?6, updated = ?7, receipt = ?8
    WHERE scope = ?1 AND operation = ?2 AND key = ?3";
const REMOVE: &str = "DELETE FROM onceward_receipts WHERE scope = ?1 AND operation = ?2 AND key = ?3";
/// The due time is what remains of it at ?4; the others are how long ago that was.
const LOAD: &str =
    "SELECT version, state, due - ?4, ?4 - created, ?4 - updated, receipt FROM onceward_receipts
    WHERE scope = ?1 AND operation = ?2 AND key = ?3";

/// The same over any driver. The transaction must have the write lock (`BEGIN IMMEDIATE`).
pub(crate) async fn swap_in<T: SqlTransaction>(tx: &mut T, swap: &Swap) -> Result<Swapped> {
    let clock = Now::read();
    let Now { earliest_us, latest_us: now, .. } = clock;
    let (scope, operation, key) = columns(&swap.id);
    let id = [Value::Text(scope), Value::Text(operation), Value::Text(key)];
    let loaded = tx.fetch(LOAD, &[id[0], id[1], id[2], Value::Int(Some(earliest_us))]).await?;
    let found = match loaded.map(|row| Cells(row).found()).transpose() {
        Ok(found) => found,
        Err(error) => return Ok(Swapped::Failed(error)),
    };
    if !is_as_seen(swap.seen, found.as_ref()) {
        return Ok(Swapped::Lost(found));
    }
    let next = tx.fetch(NEXT_VERSION, &[Value::Int(Some(now))]).await?;
    let next = next.map(Cells);
    let int = |at| next.as_ref().and_then(|row| row.int(at)).unwrap_or_default();
    let version = int(0);
    if let Some((seen, is_distrusted)) = clock.to_record(int(1)) {
        let values = [Value::Int(Some(seen)), Value::Int(Some(i64::from(is_distrusted)))];
        drop(tx.fetch(RECORD_TIME, &values).await?);
    }
    match &swap.new {
        None => drop(tx.fetch(REMOVE, &id).await?),
        Some(record) => {
            let due = due_us(record).map(|due| now.saturating_add(due));
            let values = [
                id[0],
                id[1],
                id[2],
                Value::Text(record.state.name()),
                Value::Int(Some(version)),
                Value::Int(due),
                Value::Int(Some(now)),
                Value::Bytes(&record.bytes),
            ];
            tx.fetch(statement(swap.seen), &values).await?;
        }
    }
    Ok(Swapped::Won(row::version(version)?))
}

fn is_as_seen(seen: Seen, found: Option<&Found>) -> bool {
    match (seen, found) {
        (Seen::Absent, None) => true,
        (Seen::Version(version), Some(found)) => found.version == version,
        _ => false,
    }
}

impl SqlTransaction for Connection {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch(self, statement, values).map_err(failed)
    }
}

pub(super) fn fetch(
    connection: &Connection,
    statement: &str,
    values: &[Value<'_>],
) -> rusqlite::Result<Option<Vec<Cell>>> {
    let mut statement = connection.prepare_cached(statement)?;
    let values = values.iter().map(|value| match *value {
        Value::Text(text) => ToSqlOutput::from(text),
        Value::Int(number) => number.map_or(ToSqlOutput::from(Null), ToSqlOutput::from),
        Value::Bytes(bytes) => ToSqlOutput::from(bytes),
    });
    let mut rows = statement.query(params_from_iter(values))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let cell = |at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Integer(number) => Cell::Int(number),
            ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
            ValueRef::Null | ValueRef::Real(_) => Cell::Null,
        })
    };
    let cells = (0..row.as_ref().column_count()).map(cell).collect::<rusqlite::Result<Vec<_>>>()?;
    // An INSERT or UPDATE is carried out as far as it is stepped.
    while rows.next()?.is_some() {}
    Ok(Some(cells))
}

/// A record by its id.
pub(super) fn load(
    connection: &Connection,
    (scope, operation, key): (&str, &str, &str),
    now: i64,
) -> Result<Loaded> {
    let mut statement = connection.prepare_cached(LOAD).map_err(failed)?;
    let found = statement.query_row(params![scope, operation, key, now], |row| Ok(found(row, 0)));
    Ok(found.optional().map_err(failed)?.transpose())
}

/// From the columns version, state, remaining, created, updated, receipt, which begin at this one.
pub(super) fn found(row: &Row<'_>, at: usize) -> Result<Found> {
    let receipt = match row.get_ref(at + 5).map_err(row::damaged)? {
        ValueRef::Blob(bytes) => bytes.to_vec(),
        _ => return Err(row::damaged("it has no receipt")),
    };
    row::found(row::Columns {
        version: row.get(at).map_err(row::damaged)?,
        state: row.get_ref(at + 1).map_err(row::damaged)?.as_str().map_err(row::damaged)?,
        remaining_us: row.get(at + 2).map_err(row::damaged)?,
        created_us: row.get(at + 3).map_err(row::damaged)?,
        updated_us: row.get(at + 4).map_err(row::damaged)?,
        receipt: receipt.into(),
    })
}
