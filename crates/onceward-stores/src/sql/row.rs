//! Converts rows to records and back. The states in the table are written as in `State::name`.

use std::time::Duration;

use bytes::Bytes;
use onceward::{Age, Due, Error, ErrorKind, Filter, Found, Id, Record, Result, State, Swapped, Version};

/// Due times further away than this are stored as this. That is as good as "forever", and
/// every database can represent it in microseconds.
const DUE_MAX: Duration = Duration::from_hours(24 * 365 * 200);

/// The number of every state that has none of its own. The highest: most rows get it, and appending to an index is
/// cheapest.
pub(super) const NOT_OPEN: i64 = 5;

/// The number by which PostgreSQL lists a state. (A column of its own, because PostgreSQL can update a row in place only if no
/// indexed column changes; and a claim that commits together with its outcome is given the outcome's.)
pub(super) fn open_state(state: State) -> i64 {
    match state {
        State::Waiting => 1,
        State::Held => 2,
        State::Unknown => 3,
        State::Dead => 4,
        State::Done | State::Gone => NOT_OPEN,
    }
}

/// Microseconds until a record falls due, as a database counts them.
pub(super) fn due_us(record: &Record) -> Option<i64> {
    due_in_us(record.due_in)
}

/// The same of a due time by itself.
pub(super) fn due_in_us(due_in: Option<Duration>) -> Option<i64> {
    due_in.map(|due_in| micros(due_in.min(DUE_MAX)))
}

/// Microseconds of a duration that is far below what a database can count.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A version as the database has it. One that no database can have given out matches nothing.
pub(super) fn seen(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(-1)
}

/// A version that the database gave out.
pub(super) fn version(version: i64) -> Result<Version> {
    let version = u64::try_from(version).ok().filter(|version| *version > 0);
    version.map(Version).ok_or_else(|| damaged("its version is not above 0"))
}

/// The columns of a record as they are in the table, times in microseconds.
pub(super) struct Columns<'a> {
    pub(super) version: i64,
    pub(super) state: &'a str,
    /// The time until it falls due.
    pub(super) remaining_us: Option<i64>,
    /// How long ago it was created.
    pub(super) created_us: i64,
    /// How long ago it was last written.
    pub(super) updated_us: i64,
    pub(super) receipt: Bytes,
}

/// The record of a row.
pub(super) fn found(columns: Columns<'_>) -> Result<Found> {
    let Some(state) = State::ALL.into_iter().find(|known| known.name() == columns.state) else {
        return Err(damaged(format!(
            "its state is `{}`, which this version does not know; upgrade onceward",
            columns.state.escape_default()
        )));
    };
    let due = match columns.remaining_us {
        None => Due::Never,
        Some(left) if left > 0 => Due::In(Duration::from_micros(left.unsigned_abs())),
        Some(over) => Due::Over(Duration::from_micros(over.unsigned_abs())),
    };
    let ago = |us: i64| Duration::from_micros(us.max(0).unsigned_abs());
    let age = Age::new(ago(columns.created_us), ago(columns.updated_us));
    Ok(Found::new(version(columns.version)?, state, due, age, columns.receipt))
}

/// The answer to a swap that has lost: the current record, or the error if it cannot be read.
pub(super) fn lost(found: Result<Found>) -> Swapped {
    match found {
        Ok(found) => Swapped::Lost(Some(found)),
        Err(error) => Swapped::Failed(error),
    }
}

/// Whether a row matches, by its id and the name of its state. Works for rows that cannot be read, too.
pub(super) fn matches(filter: &Filter, id: &Id, state: &[u8]) -> bool {
    filter.state.is_none_or(|wanted| wanted.name().as_bytes() == state)
        && filter.matches(id, filter.state.unwrap_or(State::Done))
}

pub(super) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Damaged, format!("a row of onceward_receipts cannot be read: {why}"))
}

#[cfg(test)]
#[path = "row_test.rs"]
mod tests;
