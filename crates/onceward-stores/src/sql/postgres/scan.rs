//! Pages: what is due, and what matches.
//!
//! A sweep would look at everything that earlier sweeps removed, again and again, for as long as some
//! other transaction keeps the server from forgetting it. So each begins at the earliest record that the
//! one before found; now and then one begins at the very beginning, for records that were written late.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use onceward::{Cursor, Error, ErrorKind, Id, Page, Result, Scan, ScanOf, State};
use tokio_postgres::Row;

use super::fault::Call;
use super::statements;
use super::store::PostgresStore;
use crate::SCAN_RECORDS_MAX;
use crate::sql::row;
use crate::sql::{PAGE_BYTES_MAX, PURGE_ROWS_MAX};

/// One sweep in so many begins at the very beginning.
const FULL_SWEEP_EVERY: u64 = 64;
/// A record written before a sweep may become visible after it, if its transaction was slow.
const LATE_US: i64 = 600_000_000;

pub(super) async fn scan(store: &PostgresStore, query: &Scan) -> Result<Page> {
    let limit = query.limit.clamp(1, SCAN_RECORDS_MAX);
    match &query.of {
        ScanOf::Due => due(store, query.after.as_ref(), limit).await,
        ScanOf::Matching { scope, operation, state } => {
            let after = match &query.after {
                None => None,
                Some(cursor) => Some(Id::from_bytes(&cursor.0).map_err(|_| not_ours())?),
            };
            matching(store, scope.as_deref(), operation.as_deref(), *state, after.as_ref(), limit).await
        }
    }
}

async fn due(store: &PostgresStore, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let Some(after) = after else {
        // The beginning of a sweep is the time to clear away what removals left behind.
        store.call(Call::Reads, statements::PURGE, &[&PURGE_ROWS_MAX]).await?;
        let full = store.sweeps.fetch_add(1, Ordering::Relaxed).is_multiple_of(FULL_SWEEP_EVERY);
        let from_us = if full { i64::MIN } else { store.sweep_from_us.load(Ordering::Relaxed) };
        let from = time(from_us);
        let rows =
            store.call(Call::Reads, statements::SCAN_DUE, &[&rows_max, &PAGE_BYTES_MAX, &from]).await?;
        if let Some(earliest) = rows.first() {
            let earliest_us: i64 = earliest.get("due_at_us");
            store.sweep_from_us.store(earliest_us.saturating_sub(LATE_US), Ordering::Relaxed);
        }
        return page(&rows, limit, cursor_due);
    };
    let (due_us, id) = after.0.split_first_chunk::<8>().ok_or_else(not_ours)?;
    let id = Id::from_bytes(id).map_err(|_| not_ours())?;
    let due_at = time(i64::from_be_bytes(*due_us));
    let rows = store
        .call(
            Call::Reads,
            statements::SCAN_DUE_AFTER,
            &[&rows_max, &PAGE_BYTES_MAX, &due_at, &id.scope(), &id.operation(), &id.key()],
        )
        .await?;
    page(&rows, limit, cursor_due)
}

async fn matching(
    store: &PostgresStore,
    scope: Option<&str>,
    operation: Option<&str>,
    state: Option<State>,
    after: Option<&Id>,
    limit: usize,
) -> Result<Page> {
    let statement = match (scope, operation) {
        (Some(_), Some(_)) => statements::SCAN_OPERATION,
        (Some(_), None) => statements::SCAN_SCOPE,
        (None, _) => statements::SCAN_ALL,
    };
    // No part of an id is empty, so this is before the first.
    let after = after.map_or(("", "", ""), |id| (id.scope(), id.operation(), id.key()));
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let state = state.map(State::name);
    let rows = store
        .call(
            Call::Reads,
            statement,
            &[&rows_max, &PAGE_BYTES_MAX, &scope, &operation, &state, &after.0, &after.1, &after.2],
        )
        .await?;
    page(&rows, limit, |_, id| Bytes::copy_from_slice(id.as_bytes()))
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
