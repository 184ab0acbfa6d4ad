//! Scans, one page at a time: due records, matching records, and the steps of an intent.
//!
//! | asked for | read by |
//! |---|---|
//! | due, of any state or of one | the index of states and due times |
//! | waiting, held, unknown, dead | the same |
//! | everything else that matches | the primary key, as far as scope and key bound it |
//! | the steps of an intent | the primary key: they come right after it |

use mysql_async::{Params, Row, Value};
use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};

use super::statements;
use super::store::{MySqlStore, found};
use crate::sql::PURGE_ROWS_MAX;
use crate::sql::row;
use crate::sql::text_cursor::{ScanOrder, TextPosition};

/// Records in one page: few enough that the largest ones fit into memory.
const PAGE_RECORDS_MAX: usize = 128;
/// Sorts after every operation, which is printable.
const LAST: &[u8] = b"\x7f";

pub(super) async fn scan(store: &MySqlStore, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), query.limit.clamp(1, PAGE_RECORDS_MAX));
    match &query.target {
        ScanTarget::Due(state) => due(store, *state, after, limit).await,
        ScanTarget::Matching(filter) => {
            let is_one_key = filter.scope.is_some() && filter.key.is_some();
            match filter.state {
                Some(State::Waiting | State::Held | State::Unknown | State::Dead) if !is_one_key => {
                    in_state(store, filter, after, limit).await
                }
                _ => by_id(store, filter, after, limit).await,
            }
        }
        ScanTarget::StepsOf(of) => steps(store, of, after, limit).await,
    }
}

async fn due(store: &MySqlStore, state: Option<State>, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let position = after.map(|cursor| TextPosition::from_cursor(cursor, ScanOrder::Due)).transpose()?;
    if position.is_none() && state.is_none() {
        // Removes the free rows that removals left behind, at the beginning of a sweep.
        store.purge(statements::PURGE, PURGE_ROWS_MAX).await?;
    }
    let behind = after_due(&position.unwrap_or_default(), limit);
    let (statement, values) = match state {
        None => {
            let mut values = Vec::new();
            (0..statements::SCAN_DUE_PLACES).for_each(|_| values.extend_from_slice(&behind));
            values.push((limit as u64).into());
            (statements::SCAN_DUE, values)
        }
        Some(state) => (statements::SCAN_DUE_IN_STATE, [&[state.name().into()][..], &behind].concat()),
    };
    let rows = store.rows(statement, Params::Positional(values)).await?;
    page(rows, limit, &Filter::default(), ScanOrder::Due, |_| true)
}

/// What matches in one state: first what has a due time, then what has none.
async fn in_state(store: &MySqlStore, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let state: Value = filter.state.map(State::name).into();
    let mut page = Page::default();
    let mut never = TextPosition::default();
    let mut left = limit;
    match after {
        Some(cursor) if TextPosition::is_of(cursor, ScanOrder::Never) => {
            never = TextPosition::from_cursor(cursor, ScanOrder::Never)?;
        }
        _ => {
            let position =
                after.map(|cursor| TextPosition::from_cursor(cursor, ScanOrder::State)).transpose()?;
            let behind = after_due(&position.unwrap_or_default(), limit);
            let values = Params::Positional([&[state.clone()][..], &behind].concat());
            let rows = store.rows(statements::SCAN_STATE, values).await?;
            left -= rows.len().min(limit);
            let last = fill(&mut page, rows, filter, |_| true)?;
            if left == 0 {
                page.next = last.map(|position| position.cursor(ScanOrder::State));
                return Ok(page);
            }
        }
    }
    let values = [&[state][..], &after_id(&never), &[(left as u64).into()]].concat();
    let rows = store.rows(statements::SCAN_STATE_NEVER, Params::Positional(values)).await?;
    let is_full = rows.len() == left;
    let last = fill(&mut page, rows, filter, |_| true)?;
    page.next = last.filter(|_| is_full).map(|position| position.cursor(ScanOrder::Never));
    Ok(page)
}

/// What matches, in the order of the primary key.
async fn by_id(store: &MySqlStore, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let position =
        after.map(|cursor| TextPosition::from_cursor(cursor, ScanOrder::Id)).transpose()?.unwrap_or_default();
    let last: Value = (limit as u64).into();
    let (key, operation): (Value, Value) = ((&position.key[..]).into(), (&position.operation[..]).into());
    let (statement, values) = match (&filter.scope, &filter.key) {
        (Some(scope), Some(key)) => {
            (statements::SCAN_KEY, vec![scope.into(), key.into(), operation, LAST.into(), last])
        }
        (Some(scope), None) => {
            (statements::SCAN_SCOPE, vec![scope.into(), key.clone(), key, operation, last])
        }
        (None, _) => (statements::SCAN, [&after_id(&position)[..], &[last]].concat()),
    };
    let rows = store.rows(statement, Params::Positional(values)).await?;
    page(rows, limit, filter, ScanOrder::Id, |_| true)
}

/// The steps directly below an intent: those further below are read and left out.
async fn steps(store: &MySqlStore, of: &Id, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let position = after.map(|cursor| TextPosition::from_cursor(cursor, ScanOrder::Id)).transpose()?;
    let first = format!("{}#", of.operation());
    let from = position.map_or_else(|| first.clone().into_bytes(), |position| position.operation);
    // The character after the one that marks a step.
    let up_to = format!("{}$", of.operation());
    let values = vec![of.scope().into(), of.key().into(), from.into(), up_to.into(), (limit as u64).into()];
    let rows = store.rows(statements::SCAN_KEY, Params::Positional(values)).await?;
    page(rows, limit, &Filter::default(), ScanOrder::Id, |id| id.parent().as_ref() == Some(of))
}

/// The rows that match, of as many as were asked for if there are more.
fn page(
    rows: Vec<Row>,
    limit: usize,
    filter: &Filter,
    order: ScanOrder,
    matches: impl Fn(&Id) -> bool,
) -> Result<Page> {
    let (mut page, is_full) = (Page::default(), rows.len() == limit);
    let last = fill(&mut page, rows, filter, matches)?;
    page.next = last.filter(|_| is_full).map(|position| position.cursor(order));
    Ok(page)
}

/// A position in the order of due times, and the limit, as parameters of a statement.
fn after_due(position: &TextPosition, limit: usize) -> [Value; 6] {
    let text = |text: &Vec<u8>| Value::Bytes(text.clone());
    let due = Value::from(position.due_us);
    let limit = Value::from(limit as u64);
    [due.clone(), due, text(&position.scope), text(&position.key), text(&position.operation), limit]
}

/// A position in the order of the primary key, as parameters of a statement.
fn after_id(position: &TextPosition) -> [Value; 4] {
    let text = |text: &Vec<u8>| Value::Bytes(text.clone());
    [text(&position.scope), text(&position.scope), text(&position.key), text(&position.operation)]
}

/// Adds the rows that match to a page, and returns the position of the last one.
fn fill(
    page: &mut Page,
    rows: Vec<Row>,
    filter: &Filter,
    matches: impl Fn(&Id) -> bool,
) -> Result<Option<TextPosition>> {
    let mut last = None;
    for row in rows {
        type Columns = (Vec<u8>, Vec<u8>, Vec<u8>, i64, Vec<u8>, Option<i64>, i64, i64, Vec<u8>, Option<i64>);
        let columns: Columns = mysql_async::from_row_opt(row).map_err(row::damaged)?;
        let (scope, operation, key, version, state, remaining, created, updated, receipt, due_us) = columns;
        let position = TextPosition { due_us: due_us.unwrap_or_default(), scope, key, operation };
        let wanted = |id: &Id| state != b"free" && row::matches(filter, id, &state) && matches(id);
        if let Some(id) = position.id().filter(wanted) {
            match found(version, &state, [remaining, Some(created), Some(updated)], receipt) {
                Ok(found) => page.found.push((id, found)),
                Err(error) => page.unreadable.push((id, error)),
            }
        }
        last = Some(position);
    }
    Ok(last)
}
