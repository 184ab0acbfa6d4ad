//! Pages: what is due, and what matches.

use bytes::{BufMut, Bytes, BytesMut};
use mysql_async::{Params, Row, Value};
use onceward::{Cursor, Error, ErrorKind, Found, Id, Page, Result, Scan, ScanOf, State};

use super::statements;
use super::store::MySqlStore;
use crate::sql::PURGE_ROWS_MAX;
use crate::sql::row;

/// Records in one page: of the largest ones there are, no more than fit into memory comfortably.
const PAGE_RECORDS_MAX: usize = 128;

pub(super) async fn scan(store: &MySqlStore, query: &Scan) -> Result<Page> {
    let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
    match &query.of {
        ScanOf::Due => due(store, query.after.as_ref(), limit).await,
        ScanOf::Matching { scope, operation, state } => {
            let wanted = |id: &Id, is: State| {
                scope.as_deref().is_none_or(|scope| id.scope() == scope)
                    && operation.as_deref().is_none_or(|operation| id.operation() == operation)
                    && state.is_none_or(|state| is == state)
            };
            matching(store, scope.as_deref(), query.after.as_ref(), limit, wanted).await
        }
    }
}

async fn due(store: &MySqlStore, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let after = after.map(|cursor| {
        let (due, id) = cursor.0.split_first_chunk::<8>().ok_or_else(not_ours)?;
        Ok((i64::from_be_bytes(*due), Id::from_bytes(id).map_err(|_| not_ours())?))
    });
    let after = after.transpose()?;
    if after.is_none() {
        // The beginning of a sweep is the time to clear away what removals left behind.
        store.purge(statements::PURGE, PURGE_ROWS_MAX).await?;
    }
    let (due, scope, operation, key) = match &after {
        Some((due, id)) => (*due, id.scope(), id.operation(), id.key()),
        None => (0, "", "", ""),
    };
    let limit_rows = limit as u64;
    let behind: [Value; 6] =
        [due.into(), due.into(), scope.into(), operation.into(), key.into(), limit_rows.into()];
    let each = State::ALL.iter().flat_map(|_| behind.iter().cloned());
    let values = each.chain([limit_rows.into()]).collect();
    let rows = store.rows(statements::SCAN_DUE, Params::Positional(values)).await?;
    page(
        rows,
        limit,
        |_, _| true,
        |_| true,
        |due, id| {
            let mut bytes = BytesMut::with_capacity(8 + id.as_bytes().len());
            bytes.put_i64(due);
            bytes.put_slice(id.as_bytes());
            bytes.freeze()
        },
    )
}

async fn matching(
    store: &MySqlStore,
    only: Option<&str>,
    after: Option<&Cursor>,
    limit: usize,
    wanted: impl Fn(&Id, State) -> bool,
) -> Result<Page> {
    let after = after.map(|cursor| Id::from_bytes(&cursor.0).map_err(|_| not_ours())).transpose()?;
    // No part of an id is empty, so this is before the first; of one scope, before its first.
    let (scope, operation, key) = match (&after, only) {
        (Some(id), _) => (id.scope(), id.operation(), id.key()),
        (None, Some(scope)) => (scope, "", ""),
        (None, None) => ("", "", ""),
    };
    let rows = store.rows(statements::SCAN, (scope, scope, operation, key, limit as u64)).await?;
    let inside = |id: &Id| only.is_none_or(|scope| id.scope() == scope);
    page(rows, limit, wanted, inside, |_, id| Bytes::copy_from_slice(id.as_bytes()))
}

/// The rows that are wanted; and where to go on, unless these were the last `inside` the scan.
fn page(
    rows: Vec<Row>,
    limit: usize,
    wanted: impl Fn(&Id, State) -> bool,
    inside: impl Fn(&Id) -> bool,
    cursor: impl Fn(i64, &Id) -> Bytes,
) -> Result<Page> {
    let mut page = Page::default();
    let full = rows.len() == limit;
    let mut last = None;
    for row in rows {
        let (id, found, due) = record(row)?;
        if !inside(&id) {
            return Ok(page);
        }
        if let Some(found) = found
            && wanted(&id, found.state)
        {
            page.found.push((id.clone(), found));
        }
        last = Some((due, id));
    }
    page.next = last.filter(|_| full).map(|(due, id)| Cursor(cursor(due, &id)));
    Ok(page)
}

/// A row of a scan; a free one has no record.
fn record(row: Row) -> Result<(Id, Option<Found>, i64)> {
    type Columns = (Vec<u8>, Vec<u8>, Vec<u8>, i64, Vec<u8>, Option<i64>, Vec<u8>, i64);
    let columns: Columns = mysql_async::from_row_opt(row).map_err(row::damaged)?;
    let (scope, operation, key, version, state, remaining_us, receipt, due) = columns;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(row::damaged);
    let id = Id::from_columns(&text(scope)?, &text(operation)?, &text(key)?).map_err(row::damaged)?;
    let state = text(state)?;
    let found =
        if state == "free" { None } else { Some(row::found(version, &state, remaining_us, receipt)?) };
    Ok((id, found, due))
}

fn not_ours() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}
