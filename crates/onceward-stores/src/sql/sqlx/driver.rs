//! What differs from one database to the next: how a value is bound and a cell is read, and what an error
//! means.

use std::future::Future;

use onceward::{Error, ErrorKind};
use sqlx::SqlStr;

use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::transactions::FailureClass;

/// A database of sqlx's that receipts can be in.
pub trait Driver: sqlx::Database {
    /// What it speaks.
    #[doc(hidden)]
    const DIALECT: Dialect;
    /// How a transaction begins that is going to write.
    #[doc(hidden)]
    const BEGIN: SqlStr;

    /// Runs one statement and gives the first row, if there is any.
    #[doc(hidden)]
    fn fetch<'a>(
        connection: &'a mut Self::Connection,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = sqlx::Result<Option<Vec<Cell>>>> + Send + 'a;

    /// What an error of this database means.
    #[doc(hidden)]
    fn meaning(error: &sqlx::Error) -> ErrorMeaning;
}

/// What an error means.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorMeaning {
    pub kind: ErrorKind,
    pub detail: &'static str,
    /// Whether it is certain that nothing of the statement remains, were it a commit.
    pub refused: bool,
    pub failure_class: FailureClass,
}

/// Whether a call could have changed anything for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStage {
    /// Inside a transaction nothing has happened until its commit.
    Inside,
    Commit,
}

/// A call failed.
pub(super) fn failed<DB: Driver>(call: CallStage, error: sqlx::Error) -> Error {
    let said = DB::meaning(&error);
    let fault = Error::new(said.kind, said.detail).caused_by(error);
    if call == CallStage::Commit && !said.refused { fault.maybe_applied() } else { fault }
}

/// Binds the values to a statement and runs it. A macro: written out as bounds it would be longer than what it does.
macro_rules! fetch {
    ($connection:expr, $statement:expr, $values:expr) => {{
        // Nobody's input: a statement of ours, or one that the caller has written.
        let mut query = sqlx::query(sqlx::AssertSqlSafe($statement));
        for value in $values {
            query = match *value {
                $crate::sql::Value::Text(text) => query.bind(text),
                $crate::sql::Value::Int(number) => query.bind(number),
                $crate::sql::Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query.fetch_optional($connection).await
    }};
}
pub(super) use fetch;

/// A cell as the first of these types that fits it; `NULL` fits any.
macro_rules! cells {
    ($row:expr, $($kind:ty => $cell:expr),+) => {{
        let row = $row;
        let cell = |at: usize| {
            $(if let Ok(value) = sqlx::Row::try_get::<Option<$kind>, _>(row, at) {
                return value.map_or($crate::sql::Cell::Null, $cell);
            })+
            $crate::sql::Cell::Null
        };
        (0..sqlx::Row::len(row)).map(cell).collect()
    }};
}
pub(super) use cells;
