//! From a row to a record and back. The words in the table are those of `State::name`.

use std::time::Duration;

use bytes::Bytes;
use onceward::{Due, Error, ErrorKind, Found, Record, Result, State, Version};

/// Due times further away than this are stored as this. What a person means by it is "for ever", and
/// every database can still count in microseconds to there.
const DUE_MAX: Duration = Duration::from_hours(24 * 365 * 200);

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

/// A record as it stands in the table. `remaining_us` is what is left until it falls due.
pub(super) fn found(version: i64, state: &str, remaining_us: Option<i64>, bytes: Vec<u8>) -> Result<Found> {
    let Some(state) = State::ALL.into_iter().find(|known| known.name() == state) else {
        return Err(damaged(format!("its state is `{state}`")));
    };
    let due = match remaining_us {
        None => Due::Never,
        Some(left) if left > 0 => Due::In(Duration::from_micros(left.unsigned_abs())),
        Some(over) => Due::Over(Duration::from_micros(over.unsigned_abs())),
    };
    Ok(Found { version: self::version(version)?, state, due, bytes: Bytes::from(bytes) })
}

pub(super) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Damaged, format!("a row of onceward_receipts cannot be read: {why}"))
}

#[cfg(test)]
#[path = "row_test.rs"]
mod tests;
