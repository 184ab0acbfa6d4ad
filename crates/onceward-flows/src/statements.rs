//! The statements that run inside a transaction of the user, for each dialect: those of an effect, and of a version.

use onceward::{Error, ErrorKind, Result};
use onceward_stores::sql::{Cell, Dialect, SqlTransaction, Value};

/// A statement, and which of its values each placeholder takes; nothing there: each the one of its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    pub(crate) takes: &'static [usize],
}

impl Statement {
    /// For dialects whose placeholders are numbered.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, takes: &[] }
    }

    /// Runs it, and returns the first row.
    pub(crate) async fn fetch<T: SqlTransaction>(
        &self,
        tx: &mut T,
        values: &[Value<'_>],
    ) -> Result<Option<Vec<Cell>>> {
        if self.takes.is_empty() {
            return tx.fetch(self.text, values).await;
        }
        tx.fetch(self.text, &self.values(values)).await
    }

    /// The values in the order of its placeholders.
    pub(crate) fn values<'a>(&self, values: &[Value<'a>]) -> Vec<Value<'a>> {
        if self.takes.is_empty() {
            return values.to_vec();
        }
        self.takes.iter().map(|at| values[*at]).collect()
    }
}

/// All of one dialect.
#[derive(Debug)]
pub(crate) struct Statements {
    /// flow, part, consumer, ordering key, message id → the fence, locked against a takeover; the state of the sequence or
    /// an empty text; 1 if the message is a dead letter; how often it was tried, -1 if that was not counted.
    pub(crate) admit: Statement,
    /// flow, part, consumer, a JSON list of `[ordering key, message id]`, the same with both in hexadecimal → the fence,
    /// locked against a takeover; one bit for each of the list, the first one the lowest: set if its key has a sequence, or
    /// if it is a dead letter or was tried before.
    pub(crate) admit_all: Statement,
    /// Whether `admit_all` takes its names in hexadecimal digits.
    pub(crate) admits_in_hex: bool,
    /// consumer, ordering key → the state of the sequence, locked.
    pub(crate) lock_sequence: Statement,
    /// consumer, ordering key → the number of its first dead letter.
    pub(crate) first: Statement,
    /// consumer, message id → the number of a dead letter that is to be tried again, locked.
    pub(crate) lock_alone: Statement,
    /// consumer, message id: removes the dead letter.
    pub(crate) remove: Statement,
    /// consumer, ordering key: removes a sequence without messages.
    pub(crate) clear: Statement,
    /// consumer, message id: forgets its tries.
    pub(crate) forget_tries: Statement,
    /// scope, entity → the version, locked.
    pub(crate) find_version: Statement,
    /// scope, entity: makes a row with version 0 if there is none.
    pub(crate) begin_version: Statement,
    /// scope, entity, version: sets it.
    pub(crate) set_version: Statement,
}

/// Those of a dialect.
pub(crate) fn statements(dialect: Dialect) -> Result<&'static Statements> {
    match dialect {
        #[cfg(feature = "mysql")]
        Dialect::MySql => Ok(&crate::mysql::STATEMENTS),
        #[cfg(feature = "postgres")]
        Dialect::Postgres => Ok(&crate::postgres::STATEMENTS),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => Ok(&crate::sqlite::STATEMENTS),
        #[allow(unreachable_patterns, reason = "a build may have all dialects")]
        other => Err(not_in_this_build(other)),
    }
}

/// The error for a dialect whose feature is off.
pub(crate) fn not_in_this_build(dialect: Dialect) -> Error {
    let detail = format!(
        "this build has no messages in {dialect:?}; the features of onceward-flows are named like those of onceward-stores"
    );
    Error::new(ErrorKind::Unfit, detail)
}

/// A text, as whichever driver has it.
pub(crate) fn text(cell: &Cell) -> Option<&str> {
    match cell {
        Cell::Text(text) => Some(text),
        Cell::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
