//! Pages: what is due, and what matches.

use bytes::{BufMut, Bytes, BytesMut};
use onceward::{Cursor, Error, ErrorKind, Id, Page, Result, Scan, ScanOf, State};
use rusqlite::types::ToSql;
use rusqlite::{Connection, Row, params};

use super::fault::failed;
use super::swap::{clock_us, found};
use crate::SCAN_RECORDS_MAX;
use crate::sql::PAGE_BYTES_MAX;
use crate::sql::row;

const COLUMNS: &str = "version, state, due, receipt, scope, operation, key";

pub(super) fn scan(connection: &Connection, query: &Scan) -> Result<Page> {
    let limit = query.limit.clamp(1, SCAN_RECORDS_MAX);
    match &query.of {
        ScanOf::Due => due(connection, query.after.as_ref(), limit),
        ScanOf::Matching { scope, operation, state } => {
            let after = query.after.as_ref().map(|cursor| Id::from_bytes(&cursor.0).map_err(|_| not_ours()));
            let wanted = |id: &Id, is: State| {
                scope.as_deref().is_none_or(|scope| id.scope() == scope)
                    && operation.as_deref().is_none_or(|operation| id.operation() == operation)
                    && state.is_none_or(|state| is == state)
            };
            matching(connection, scope.as_deref(), after.transpose()?.as_ref(), limit, wanted)
        }
    }
}

fn due(connection: &Connection, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let now = clock_us();
    let after = after.map(|cursor| {
        let (due, id) = cursor.0.split_first_chunk::<8>().ok_or_else(not_ours)?;
        Ok((i64::from_be_bytes(*due), Id::from_bytes(id).map_err(|_| not_ours())?))
    });
    let after = after.transpose()?;
    let (due, scope, operation, key) = match &after {
        Some((due, id)) => (*due, id.scope(), id.operation(), id.key()),
        None => (i64::MIN, "", "", ""),
    };
    let statement = format!(
        "SELECT {COLUMNS} FROM onceward_receipts WHERE due IS NOT NULL AND due <= ?1
         AND (due, scope, operation, key) > (?2, ?3, ?4, ?5) ORDER BY due, scope, operation, key LIMIT ?6"
    );
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    page(
        connection,
        &statement,
        params![now, due, scope, operation, key, limit_rows],
        limit,
        |_, _| true,
        |row, id| {
            let mut bytes = BytesMut::with_capacity(8 + id.as_bytes().len());
            bytes.put_i64(row.get(2).unwrap_or(i64::MIN));
            bytes.put_slice(id.as_bytes());
            bytes.freeze()
        },
    )
}

fn matching(
    connection: &Connection,
    scope: Option<&str>,
    after: Option<&Id>,
    limit: usize,
    wanted: impl Fn(&Id, State) -> bool,
) -> Result<Page> {
    // No part of an id is empty, so this is before the first.
    let (after_scope, operation, key) =
        after.map_or(("", "", ""), |id| (id.scope(), id.operation(), id.key()));
    let only = if scope.is_some() { "scope = ?5 AND" } else { "?5 IS NULL AND" };
    let statement = format!(
        "SELECT {COLUMNS} FROM onceward_receipts WHERE {only} (scope, operation, key) > (?1, ?2, ?3)
         ORDER BY scope, operation, key LIMIT ?4"
    );
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters = params![after_scope, operation, key, limit_rows, scope];
    page(connection, &statement, parameters, limit, wanted, |_, id| Bytes::copy_from_slice(id.as_bytes()))
}

/// The rows that are wanted; and where to go on, unless these were the last.
fn page(
    connection: &Connection,
    statement: &str,
    parameters: &[&dyn ToSql],
    limit: usize,
    wanted: impl Fn(&Id, State) -> bool,
    cursor: impl Fn(&Row<'_>, &Id) -> Bytes,
) -> Result<Page> {
    let now = clock_us();
    let mut page = Page::default();
    let (mut seen, mut bytes) = (0, 0);
    let mut statement = connection.prepare_cached(statement).map_err(failed)?;
    let mut rows = statement.query(parameters).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |at| row.get_ref(at).and_then(|value| Ok(value.as_str()?)).map_err(row::damaged);
        let id = Id::from_columns(text(4)?, text(5)?, text(6)?).map_err(row::damaged)?;
        let record = found(row, now)?;
        seen += 1;
        if wanted(&id, record.state) {
            bytes += record.bytes.len();
            page.found.push((id.clone(), record));
        }
        if seen == limit || i64::try_from(bytes).unwrap_or(i64::MAX) >= PAGE_BYTES_MAX {
            page.next = Some(Cursor(cursor(row, &id)));
            break;
        }
    }
    Ok(page)
}

fn not_ours() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}
