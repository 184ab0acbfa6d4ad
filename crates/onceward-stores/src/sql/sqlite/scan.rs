//! Scans, one page at a time: due records, matching records, and the steps of an intent.
//!
//! | asked for | read by |
//! |---|---|
//! | due, of any state | the index of states and due times, once for each state, merged |
//! | one state: due; waiting, held, unknown, dead | the same index, once |
//! | everything else that matches | the primary key, as far as scope and key bound it |
//! | the steps of an intent | the primary key: they come right after it |

use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params};

use super::errors::failed;
use super::now::Now;
use super::swap::found;
use crate::kit::scan_limit;
use crate::sql::PAGE_BYTES_MAX;
use crate::sql::row;
use crate::sql::text_cursor::{ScanOrder, TextPosition};

/// The rows for which a condition holds; ?1 is the time.
macro_rules! rows {
    ($where:expr) => {
        concat!(
            "SELECT due, scope, key, operation, version, state, due - ?1, ?1 - created, ?1 - updated, receipt
    FROM onceward_receipts WHERE ",
            $where
        )
    };
}

/// Where the columns of a record begin in such a row.
const FOUND_AT: usize = 4;

/// Rows of these states that fall due up to ?2, after a position (?3 to ?6).
macro_rules! due_in {
    ($states:literal) => {
        rows!(concat!(
            $states,
            " AND due IS NOT NULL AND due <= ?2 AND (due, scope, key, operation) > (?3, ?4, ?5, ?6)"
        ))
    };
}

macro_rules! by_due {
    () => {
        " ORDER BY due, scope, key, operation"
    };
}

macro_rules! by_id {
    () => {
        " ORDER BY scope, key, operation"
    };
}

/// What is due, after a position. The index is by state and due time, so one lookup for each state reads only what is
/// due; those between them are for the states of later versions, which this version cannot read. They are merged row
/// by row.
const DUE: &str = concat!(
    due_in!("state < 'dead'"),
    " UNION ALL ",
    due_in!("state = 'dead'"),
    " UNION ALL ",
    due_in!("state > 'dead' AND state < 'done'"),
    " UNION ALL ",
    due_in!("state = 'done'"),
    " UNION ALL ",
    due_in!("state > 'done' AND state < 'gone'"),
    " UNION ALL ",
    due_in!("state = 'gone'"),
    " UNION ALL ",
    due_in!("state > 'gone' AND state < 'held'"),
    " UNION ALL ",
    due_in!("state = 'held'"),
    " UNION ALL ",
    due_in!("state > 'held' AND state < 'unknown'"),
    " UNION ALL ",
    due_in!("state = 'unknown'"),
    " UNION ALL ",
    due_in!("state > 'unknown' AND state < 'waiting'"),
    " UNION ALL ",
    due_in!("state = 'waiting'"),
    " UNION ALL ",
    due_in!("state > 'waiting'"),
    by_due!()
);

/// What falls due in the state ?7, after a position.
const IN_STATE: &str = concat!(due_in!("state = ?7"), by_due!());

/// What is in the state ?2, which is not `done`, and never falls due, after a position (?3 to ?5).
const NEVER_DUE: &str = concat!(
    rows!("state = ?2 AND state <> 'done' AND due IS NULL AND (scope, key, operation) > (?3, ?4, ?5)"),
    by_id!()
);

/// Everything after a position (?2 to ?4).
const ALL: &str = concat!(rows!("(scope, key, operation) > (?2, ?3, ?4)"), by_id!());

/// What is in the scope ?2, after a position in it (?3 and ?4).
const OF_SCOPE: &str = concat!(rows!("scope = ?2 AND (key, operation) > (?3, ?4)"), by_id!());

/// What the scope ?2 uses the key ?3 for: operations after ?4 and before ?5.
const OF_KEY: &str =
    concat!(rows!("scope = ?2 AND key = ?3 AND operation > ?4 AND operation < ?5"), by_id!());

/// Sorts after every operation, which is printable.
const LAST: &str = "\x7f";

pub(super) fn scan(connection: &Connection, query: &Scan) -> Result<Page> {
    let mut page = PageBuilder::new(connection, scan_limit(query));
    let after = query.after.as_ref();
    let everything = Filter::default();
    match &query.target {
        ScanTarget::Due(state) => {
            let TextPosition { due_us, scope, key, operation } = &position(after, ScanOrder::Due)?;
            let (now, name) = (page.now, state.map(State::name));
            let parameters =
                params![now, now, due_us, RawText(scope), RawText(key), RawText(operation), name];
            let (statement, count) = if state.is_some() { (IN_STATE, 7) } else { (DUE, 6) };
            page.add(statement, &parameters[..count], &everything, |_| true)?;
            Ok(page.end(ScanOrder::Due))
        }
        ScanTarget::Matching(filter) => {
            let is_one_key = filter.scope.is_some() && filter.key.is_some();
            match filter.state {
                Some(State::Waiting | State::Held | State::Unknown | State::Dead) if !is_one_key => {
                    in_state(page, filter, after)
                }
                _ => by_id(page, filter, after),
            }
        }
        ScanTarget::StepsOf(of) => {
            let operation = match after {
                None => format!("{}#", of.operation()).into_bytes(),
                Some(cursor) => TextPosition::from_cursor(cursor, ScanOrder::Id)?.operation,
            };
            // The character after the one that marks a step.
            let (now, up_to) = (page.now, format!("{}$", of.operation()));
            let parameters = params![now, of.scope(), of.key(), RawText(&operation), up_to];
            // Those that are not directly below it are read and left out.
            page.add(OF_KEY, parameters, &everything, |id| id.parent().as_ref() == Some(of))?;
            Ok(page.end(ScanOrder::Id))
        }
    }
}

/// What matches in one state: first what has a due time, then what has none.
fn in_state(mut page: PageBuilder<'_>, filter: &Filter, after: Option<&Cursor>) -> Result<Page> {
    let (now, state) = (page.now, filter.state.map(State::name));
    let never = match after {
        Some(cursor) if TextPosition::is_of(cursor, ScanOrder::Never) => {
            TextPosition::from_cursor(cursor, ScanOrder::Never)?
        }
        _ => {
            let TextPosition { due_us, scope, key, operation } = &position(after, ScanOrder::State)?;
            let parameters =
                params![now, i64::MAX, due_us, RawText(scope), RawText(key), RawText(operation), state];
            page.add(IN_STATE, parameters, filter, |_| true)?;
            if page.is_full() {
                return Ok(page.end(ScanOrder::State));
            }
            TextPosition::default()
        }
    };
    let parameters =
        params![now, state, RawText(&never.scope), RawText(&never.key), RawText(&never.operation)];
    page.add(NEVER_DUE, parameters, filter, |_| true)?;
    Ok(page.end(ScanOrder::Never))
}

/// What matches, in the order of the primary key.
fn by_id(mut page: PageBuilder<'_>, filter: &Filter, after: Option<&Cursor>) -> Result<Page> {
    let behind = position(after, ScanOrder::Id)?;
    let (now, key, operation) = (page.now, RawText(&behind.key), RawText(&behind.operation));
    match (&filter.scope, &filter.key) {
        (Some(scope), Some(key)) => {
            page.add(OF_KEY, params![now, scope, key, operation, LAST], filter, |_| true)?;
        }
        (Some(scope), None) => {
            page.add(OF_SCOPE, params![now, scope, key, operation], filter, |_| true)?;
        }
        (None, _) => page.add(ALL, params![now, RawText(&behind.scope), key, operation], filter, |_| true)?,
    }
    Ok(page.end(ScanOrder::Id))
}

fn position(after: Option<&Cursor>, order: ScanOrder) -> Result<TextPosition> {
    after.map_or_else(
        || Ok(TextPosition { due_us: i64::MIN, ..TextPosition::default() }),
        |at| TextPosition::from_cursor(at, order),
    )
}

/// Text as it is in the table, whether it is text or not.
struct RawText<'a>(&'a [u8]);

impl ToSql for RawText<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// A page that is being filled.
struct PageBuilder<'c> {
    connection: &'c Connection,
    now: i64,
    /// How many more rows may be read.
    left: usize,
    bytes: usize,
    last: Option<TextPosition>,
    page: Page,
}

impl<'c> PageBuilder<'c> {
    fn new(connection: &'c Connection, limit: usize) -> Self {
        Self {
            connection,
            now: Now::read().earliest_us,
            left: limit,
            bytes: 0,
            last: None,
            page: Page::default(),
        }
    }

    /// Reads the rows of a statement until the page is full, and adds those that match.
    fn add(
        &mut self,
        statement: &str,
        parameters: &[&dyn ToSql],
        filter: &Filter,
        matches: impl Fn(&Id) -> bool,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = statement.query(parameters).map_err(failed)?;
        while !self.is_full()
            && let Some(row) = rows.next().map_err(failed)?
        {
            let position = position_of(row)?;
            let state =
                row.get_ref(FOUND_AT + 1).ok().and_then(|word| word.as_bytes().ok()).unwrap_or_default();
            let wanted = |id: &Id| row::matches(filter, id, state) && matches(id);
            if let Some(id) = position.id().filter(wanted) {
                match found(row, FOUND_AT) {
                    Ok(found) => {
                        self.bytes += found.bytes.len();
                        self.page.found.push((id, found));
                    }
                    Err(error) => self.page.unreadable.push((id, error)),
                }
            }
            self.left -= 1;
            self.last = Some(position);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.left == 0 || i64::try_from(self.bytes).unwrap_or(i64::MAX) >= PAGE_BYTES_MAX
    }

    /// The page, with a cursor if it is full.
    fn end(mut self, order: ScanOrder) -> Page {
        if self.is_full() {
            self.page.next = self.last.map(|position| position.cursor(order));
        }
        self.page
    }
}

/// The position of a row, from its first four columns.
fn position_of(row: &Row<'_>) -> Result<TextPosition> {
    let text = |at| -> Result<Vec<u8>> {
        let value = row.get_ref(at).map_err(row::damaged)?;
        Ok(value.as_bytes().map_err(row::damaged)?.to_vec())
    };
    let due_us = row.get::<_, Option<i64>>(0).map_err(row::damaged)?.unwrap_or_default();
    Ok(TextPosition { due_us, scope: text(1)?, key: text(2)?, operation: text(3)? })
}

#[cfg(test)]
#[path = "scan_test.rs"]
mod tests;
