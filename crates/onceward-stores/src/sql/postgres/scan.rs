//! Scans, one page at a time: due records, matching records, and the steps of an intent.
//!
//! | asked for | read by |
//! |---|---|
//! | due, of any state | the index of states and due times, once for each number of `open_state` |
//! | due, of one state; waiting, held, unknown, dead | the same index, once |
//! | everything else that matches | the primary key, as far as scope and key bound it |
//! | the steps of an intent | the primary key: they have its scope and key |

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State, TextMatch};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::IdColumns;
use super::digest::range_of;
use super::errors::CallEffect;
use super::scan_statements as statements;
use super::store::{PostgresStore, found};
use super::sweep::{BEGINNING, PageStart, Purged, SweepPosition};
use crate::kit::cursor::{foreign, pack, unpack};
use crate::kit::scan_limit;
use crate::sql::PAGE_BYTES_MAX;
use crate::sql::row::{NOT_OPEN, open_state};

/// Rows that are read to find expired free rows.
const PURGE_LOOK_MAX: i64 = 10_000;
/// Where the columns of a record begin in a row of a page.
const FOUND_AT: usize = 10;

/// Which rows a scan reads, and in which order. A cursor is good for its own kind only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanOrder {
    /// By due time.
    Due = 1,
    /// By the primary key.
    Id = 2,
    /// Of one state, by due time; those that are never due come later.
    State = 3,
    /// Of one state, those that are never due.
    Never = 4,
}

/// The position of a row in a scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ScanPosition {
    due_us: i64,
    numbers: [i64; 3],
}

/// Before every row. (Only an id with the lowest possible numbers is not after this; none is known.)
const FIRST: ScanPosition = ScanPosition { due_us: i64::MIN, numbers: [i64::MIN; 3] };

impl ScanPosition {
    fn of(row: &Row) -> Self {
        let due_us = row.get::<_, Option<i64>>("due_at_us").unwrap_or(i64::MIN);
        Self { due_us, numbers: [row.get("id_high"), row.get("id_middle"), row.get("id_low")] }
    }

    fn cursor(self, order: ScanOrder) -> Cursor {
        let [high, middle, low] = self.numbers.map(i64::cast_unsigned);
        pack(&[order as u64, self.due_us.cast_unsigned(), high, middle, low])
    }

    /// The order and the position in a cursor of this store.
    fn from_cursor(cursor: &Cursor, orders: &[ScanOrder]) -> Result<(ScanOrder, Self)> {
        let [kind, due_us, numbers @ ..] = unpack::<5>(cursor)?;
        let order = orders.iter().find(|order| **order as u64 == kind).ok_or_else(foreign)?;
        Ok((*order, Self { due_us: due_us.cast_signed(), numbers: numbers.map(u64::cast_signed) }))
    }
}

pub(super) async fn scan(store: &PostgresStore, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), scan_limit(query));
    match &query.target {
        ScanTarget::Due(state) => due(store, *state, after, limit).await,
        ScanTarget::Matching(filter) => {
            let is_one_key = filter.scope.is_some() && filter.key.is_some();
            match filter.state.filter(|_| !is_one_key) {
                Some(state) if open_state(state) != NOT_OPEN => {
                    in_state(store, state, filter, after, limit).await
                }
                _ => by_id(store, filter, after, limit, |_| true).await,
            }
        }
        ScanTarget::StepsOf(of) => {
            let filter = Filter::default()
                .with_scope(of.scope().to_owned())
                .with_key(of.key().to_owned())
                .with_operation(TextMatch::StartsWith(of.operation().to_owned()));
            by_id(store, &filter, after, limit, |id| id.parent().as_ref() == Some(of)).await
        }
    }
}

/// Due records, in one state or in any. Sweeps and polls of workers start where the previous ones ended.
async fn due(
    store: &PostgresStore,
    state: Option<State>,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let position = store.positions.of(state);
    let (behind, cursor) = match (after, position) {
        (Some(cursor), _) => {
            (Some(PageStart::Cursor(&cursor.0)), ScanPosition::from_cursor(cursor, &[ScanOrder::Due])?.1)
        }
        (None, Some(position)) => (Some(PageStart::Beginning(begin(store, state, position).await?)), FIRST),
        (None, None) => (None, FIRST),
    };
    let start = position.map_or(BEGINNING, SweepPosition::start);
    let kept = IdColumns::of(&start.kept.iter().collect::<Vec<_>>());
    let from = cursor.max(ScanPosition { due_us: start.from_us, ..FIRST });
    let (rows_max, from_due, cursor_due) = (rows(limit), time(from.due_us), time(cursor.due_us));
    let ([high, middle, low], [last_high, last_middle, last_low]) = (&from.numbers, &cursor.numbers);
    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
        &rows_max,
        &rows_max,
        &PAGE_BYTES_MAX,
        &from_due,
        high,
        middle,
        low,
        &cursor_due,
        last_high,
        last_middle,
        last_low,
        &kept.numbers.highs,
        &kept.numbers.middles,
        &kept.numbers.lows,
        &kept.scopes,
        &kept.operations,
        &kept.keys,
    ];
    let numbered = state.map(|state| (open_state(state), state.name()));
    let statement = match &numbered {
        None => statements::SCAN_DUE,
        Some((number, name)) => {
            parameters.extend([number as &(dyn ToSql + Sync), name]);
            statements::SCAN_DUE_IN_STATE
        }
    };
    let rows = store.call(CallEffect::Reads, statement, &parameters).await?;
    let page = page(&rows, limit, ScanOrder::Due, |_| true);
    if let Some((position, behind)) = position.zip(behind) {
        let found = rows.iter().filter_map(|row| Some((row.get("due_at_us"), id_of(row)?))).collect();
        position.page(behind, found, page.next.as_ref().map(|cursor| &cursor.0));
    }
    Ok(page)
}

/// Begins a sweep or a poll. Returns the server's clock.
async fn begin(store: &PostgresStore, state: Option<State>, position: &SweepPosition) -> Result<i64> {
    let free_from = position.begin();
    let (clock_us, purged) = match state {
        None => purge(store, free_from).await?,
        Some(_) => {
            let clock = store.call(CallEffect::Reads, statements::CLOCK, &[]).await?;
            (clock[0].get(0), Purged::All)
        }
    };
    position.purged(clock_us, purged);
    Ok(clock_us)
}

/// Removes the free rows that removals left behind, at the beginning of a sweep. Returns the server's clock, and how
/// far it came.
async fn purge(store: &PostgresStore, free_from_us: i64) -> Result<(i64, Purged)> {
    let free_from = time(free_from_us);
    let purge: [&(dyn ToSql + Sync); 2] = [&PURGE_LOOK_MAX, &free_from];
    let purged = store.call(CallEffect::Reads, statements::PURGE, &purge).await?;
    let (clock_us, looked_to_us): (i64, Option<i64>) = (purged[0].get(0), purged[0].get(1));
    let all = purged[0].get::<_, i64>(2) < PURGE_LOOK_MAX;
    Ok((clock_us, looked_to_us.filter(|_| !all).map_or(Purged::All, Purged::UpTo)))
}

/// What matches in one state: first what has a due time, then what has none.
async fn in_state(
    store: &PostgresStore,
    state: State,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let (order, mut position) = match after {
        None => (ScanOrder::State, FIRST),
        Some(cursor) => ScanPosition::from_cursor(cursor, &[ScanOrder::State, ScanOrder::Never])?,
    };
    let (mut all, mut left, number) = (Page::default(), limit, open_state(state));
    if order == ScanOrder::State {
        let (wanted, due, [high, middle, low]) =
            (PageFilter::of(filter, limit), time(position.due_us), &position.numbers);
        let parameters = wanted.and(&[&number, &due, high, middle, low]);
        let rows = store.call(CallEffect::Reads, statements::SCAN_STATE, &parameters).await?;
        all = page(&rows, limit, ScanOrder::State, |_| true);
        left -= looked_at(&rows).min(limit);
        if all.next.is_some() {
            return Ok(all);
        }
        position = FIRST;
    }
    let (wanted, [high, middle, low]) = (PageFilter::of(filter, left), &position.numbers);
    let parameters = wanted.and(&[&number, high, middle, low]);
    let rows = store.call(CallEffect::Reads, statements::SCAN_STATE_NEVER, &parameters).await?;
    let never = page(&rows, left, ScanOrder::Never, |_| true);
    all.found.extend(never.found);
    all.unreadable.extend(never.unreadable);
    all.next = never.next;
    Ok(all)
}

/// What matches, in the order of the primary key.
async fn by_id(
    store: &PostgresStore,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
    matches: impl Fn(&Id) -> bool,
) -> Result<Page> {
    let range = range_of(filter.scope.as_deref(), filter.key.as_deref());
    let position = match after {
        None => ScanPosition { numbers: [*range.start(), i64::MIN, i64::MIN], ..FIRST },
        Some(cursor) => ScanPosition::from_cursor(cursor, &[ScanOrder::Id])?.1,
    };
    let (wanted, [high, middle, low]) = (PageFilter::of(filter, limit), &position.numbers);
    let parameters = wanted.and(&[high, middle, low, range.end()]);
    let rows = store.call(CallEffect::Reads, statements::SCAN_IDS, &parameters).await?;
    Ok(page(&rows, limit, ScanOrder::Id, matches))
}

/// The limit and the filter of a page, as parameters of a statement.
struct PageFilter<'a> {
    rows_max: i64,
    scope: Option<&'a str>,
    operation: Option<&'a str>,
    prefix: Option<&'a str>,
    key: Option<&'a str>,
    state: Option<&'static str>,
}

impl<'a> PageFilter<'a> {
    fn of(filter: &'a Filter, limit: usize) -> Self {
        let (operation, prefix) = match &filter.operation {
            None => (None, None),
            Some(TextMatch::Is(operation)) => (Some(operation.as_str()), None),
            Some(TextMatch::StartsWith(prefix)) => (None, Some(prefix.as_str())),
        };
        let (scope, key) = (filter.scope.as_deref(), filter.key.as_deref());
        let (rows_max, state) = (rows(limit), filter.state.map(State::name));
        Self { rows_max, scope, operation, prefix, key, state }
    }

    /// With the position where the statement begins.
    fn and<'p>(&'p self, position: &[&'p (dyn ToSql + Sync)]) -> Vec<&'p (dyn ToSql + Sync)> {
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
            &self.rows_max,
            &self.rows_max,
            &PAGE_BYTES_MAX,
            &self.scope,
            &self.operation,
            &self.prefix,
            &self.key,
            &self.state,
        ];
        parameters.extend_from_slice(position);
        parameters
    }
}

fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The page of the rows that are wanted, with a cursor unless these were the last. The statement has read `limit` rows,
/// or all if there were fewer.
fn page(rows: &[Row], limit: usize, order: ScanOrder, matches: impl Fn(&Id) -> bool) -> Page {
    let mut page = Page::default();
    for row in rows.iter().filter(|row| row.get("wanted")) {
        let Some(id) = id_of(row).filter(&matches) else { continue };
        match found(row, FOUND_AT) {
            Ok(found) => page.found.push((id, found)),
            Err(error) => page.unreadable.push((id, error)),
        }
    }
    let goes_on = |last: &&Row| looked_at(rows) >= limit || !last.get::<_, bool>("all_of_them");
    page.next = rows.last().filter(goes_on).map(|last| ScanPosition::of(last).cursor(order));
    page
}

/// How many rows the statement has read, or could have read.
fn looked_at(rows: &[Row]) -> usize {
    let total = rows.last().map_or(0, |last| last.get::<_, i64>("total"));
    usize::try_from(total).unwrap_or_default()
}

/// The id of a row. An invalid one was not written by this crate, and no caller can ask for it.
pub(super) fn id_of(row: &Row) -> Option<Id> {
    match Id::from_columns(row.get("scope"), row.get("operation"), row.get("key")) {
        Ok(id) => Some(id),
        Err(error) => {
            tracing::error!(%error, "a row of onceward_receipts has an id that cannot be one, it is left out");
            None
        }
    }
}

pub(super) fn time(us: i64) -> SystemTime {
    match u64::try_from(us) {
        Ok(us) => UNIX_EPOCH + Duration::from_micros(us),
        Err(_) => UNIX_EPOCH,
    }
}
