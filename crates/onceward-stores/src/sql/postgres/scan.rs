//! Pages: what is due, and what matches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use onceward::{Cursor, Error, ErrorKind, Id, Page, Result, Scan, ScanOf, State};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::Ids;
use super::digest::{Digest, range_of_scope};
use super::fault::Call;
use super::statements;
use super::store::PostgresStore;
use super::sweep::{Behind, Purged};
use crate::SCAN_RECORDS_MAX;
use crate::sql::PAGE_BYTES_MAX;
use crate::sql::kinds::columns;
use crate::sql::row;

/// Rows that are looked at to find those that are free and over.
const PURGE_LOOK_MAX: i64 = 10_000;
/// What a cursor of a list begins with. Lists were once in other orders, and their cursors the bytes of an id, or
/// those after a zero. No id begins with one; taken for one of ours, such a cursor would leave receipts out.
const BY_DIGEST: [u8; 2] = [0, 0];

pub(super) async fn scan(store: &PostgresStore, query: &Scan) -> Result<Page> {
    let limit = query.limit.clamp(1, SCAN_RECORDS_MAX);
    match &query.of {
        ScanOf::Due => due(store, query.after.as_ref(), limit).await,
        ScanOf::Matching { scope, operation, state } => {
            let after = match &query.after {
                None => None,
                Some(cursor) => Some(id_behind(cursor)?),
            };
            matching(store, scope.as_deref(), operation.as_deref(), *state, after.as_ref(), limit).await
        }
    }
}

async fn due(store: &PostgresStore, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let position = &store.position;
    let (behind, cursor) = match after {
        None => {
            // The beginning of a sweep is the time to clear away what removals left behind.
            let free_from = time(position.begin());
            let purge: [&(dyn ToSql + Sync); 2] = [&PURGE_LOOK_MAX, &free_from];
            let purged = store.call(Call::Reads, statements::PURGE, &purge).await?;
            let (clock_us, looked_to_us): (i64, Option<i64>) = (purged[0].get(0), purged[0].get(1));
            let all = purged[0].get::<_, i64>(2) < PURGE_LOOK_MAX;
            position.purged(clock_us, looked_to_us.filter(|_| !all).map_or(Purged::All, Purged::UpTo));
            (Behind::Beginning(clock_us), (i64::MIN, None))
        }
        Some(cursor) => {
            let (due_us, id) = cursor.0.split_first_chunk::<8>().ok_or_else(not_ours)?;
            let id = Id::from_bytes(id).map_err(|_| not_ours())?;
            (Behind::Cursor(&cursor.0), (i64::from_be_bytes(*due_us), Some(id)))
        }
    };
    let start = position.start();
    let kept = Ids::of(&start.kept.iter().collect::<Vec<_>>());
    // No part of an id is empty, so this is before the first of that time.
    let cursor = (cursor.0, cursor.1.as_ref().map_or(("", "", ""), columns));
    let from = cursor.max((start.from_us, ("", "", "")));
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let (from_due, cursor_at) = (time(from.0), time(cursor.0));
    let ((scope, operation, key), (last_scope, last_operation, last_key)) = (from.1, cursor.1);
    let parameters: [&(dyn ToSql + Sync); 16] = [
        &rows_max,
        &PAGE_BYTES_MAX,
        &from_due,
        &scope,
        &operation,
        &key,
        &cursor_at,
        &last_scope,
        &last_operation,
        &last_key,
        &kept.numbers.highs,
        &kept.numbers.middles,
        &kept.numbers.lows,
        &kept.scopes,
        &kept.operations,
        &kept.keys,
    ];
    let rows = store.call(Call::Reads, statements::SCAN_DUE, &parameters).await?;
    let page = page(&rows, limit, cursor_due)?;
    let dues = rows.iter().map(|row| row.get("due_at_us"));
    let found = dues.zip(page.found.iter().map(|(id, _)| id.clone())).collect();
    position.page(behind, found, page.next.as_ref().map(|cursor| &cursor.0));
    Ok(page)
}

async fn matching(
    store: &PostgresStore,
    scope: Option<&str>,
    operation: Option<&str>,
    state: Option<State>,
    after: Option<&Id>,
    limit: usize,
) -> Result<Page> {
    let range = scope.map_or(i64::MIN..=i64::MAX, range_of_scope);
    // Only an id with the lowest number of all is not behind this; nobody has ever made one.
    let after = after.map_or(Digest { high: *range.start(), middle: i64::MIN, low: i64::MIN }, Digest::of);
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let state = state.map(State::name);
    let Digest { high, middle, low } = &after;
    let parameters: [&(dyn ToSql + Sync); 9] =
        [&rows_max, &PAGE_BYTES_MAX, &scope, &operation, &state, high, middle, low, range.end()];
    let (statement, parameters) = match scope {
        Some(_) => (statements::SCAN_SCOPE, &parameters[..]),
        None => (statements::SCAN_ALL, &parameters[..8]),
    };
    let rows = store.call(Call::Reads, statement, parameters).await?;
    page(&rows, limit, |_, id| [&BY_DIGEST, id.as_bytes()].concat().into())
}

fn id_behind(cursor: &Cursor) -> Result<Id> {
    let id = cursor.0.strip_prefix(&BY_DIGEST).ok_or_else(not_ours)?;
    Id::from_bytes(id).map_err(|_| not_ours())
}

/// The rows that are wanted; and where to go on, unless these were the last.
fn page(rows: &[Row], limit: usize, cursor: impl Fn(&Row, &Id) -> Bytes) -> Result<Page> {
    let mut page = Page::default();
    let mut last = None;
    for row in rows {
        let id =
            Id::from_columns(row.get("scope"), row.get("operation"), row.get("key")).map_err(row::damaged)?;
        if row.get("wanted") {
            let receipt: Vec<u8> = row.get("receipt");
            let found = row::found(row.get("version"), row.get("state"), row.get("remaining_us"), receipt)?;
            page.found.push((id.clone(), found));
        }
        last = Some((row, id));
    }
    if let Some((row, id)) = last {
        let total = usize::try_from(row.get::<_, i64>("total")).unwrap_or(limit);
        page.next = (total >= limit || rows.len() < total).then(|| Cursor(cursor(row, &id)));
    }
    Ok(page)
}

fn cursor_due(row: &Row, id: &Id) -> Bytes {
    let mut bytes = BytesMut::with_capacity(8 + id.as_bytes().len());
    bytes.put_i64(row.get("due_at_us"));
    bytes.put_slice(id.as_bytes());
    bytes.freeze()
}

fn time(us: i64) -> SystemTime {
    match u64::try_from(us) {
        Ok(us) => UNIX_EPOCH + Duration::from_micros(us),
        Err(_) => UNIX_EPOCH,
    }
}

fn not_ours() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}
