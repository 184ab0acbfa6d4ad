//! The trait for what differs between the databases of sqlx: binding values, reading cells, and the meaning of errors.

use std::future::Future;

use onceward::{Error, ErrorKind};
use sqlx::SqlStr;

use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::transactions::FailureClass;

/// A database of sqlx's that receipts can be in.
pub trait Driver: sqlx::Database {
    /// Its SQL dialect.
    #[doc(hidden)]
    const DIALECT: Dialect;
    /// The statement that begins a transaction that will write.
    #[doc(hidden)]
    const BEGIN: SqlStr;

    /// Runs one statement and returns the first row, if there is one.
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

/// The meaning of an error.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorMeaning {
    pub kind: ErrorKind,
    pub detail: &'static str,
    /// Whether it is certain that a commit with this error did not happen.
    pub refused: bool,
    pub failure_class: FailureClass,
}

/// Whether a failed call may have committed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStage {
    /// Inside a transaction nothing has happened until its commit.
    Inside,
    Commit,
}

/// The error of a failed call.
pub(super) fn failed<DB: Driver>(call: CallStage, error: sqlx::Error) -> Error {
    let said = DB::meaning(&error);
    let fault = Error::new(said.kind, said.detail).caused_by(error);
    if call == CallStage::Commit && !said.refused { fault.maybe_applied() } else { fault }
}

/// Binds the values to a statement and runs it. A macro, because the trait bounds of a function would be longer than its body.
macro_rules! fetch {
    ($connection:expr, $statement:expr, $values:expr) => {{
        // Not user input: a statement of this crate or of the caller.
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
