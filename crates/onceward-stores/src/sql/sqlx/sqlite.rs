//! SQLite through sqlx.

use rusqlite::ErrorCode;
use sqlx::{SqlStr, Sqlite, SqliteConnection};

use super::driver::{Driver, ErrorMeaning, cells, fetch};
use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::sqlite::errors::{explain, is_busy};
use crate::sql::transactions::FailureClass;

impl Driver for Sqlite {
    const DIALECT: Dialect = Dialect::Sqlite;
    const BEGIN: SqlStr = SqlStr::from_static("BEGIN IMMEDIATE");

    async fn fetch<'a>(
        connection: &'a mut SqliteConnection,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> sqlx::Result<Option<Vec<Cell>>> {
        let row = fetch!(connection, statement, values)?;
        Ok(row
            .as_ref()
            .map(|row| cells!(row, i64 => Cell::Int, String => Cell::Text, Vec<u8> => Cell::Bytes)))
    }

    fn meaning(error: &sqlx::Error) -> ErrorMeaning {
        let code = code(error);
        let (kind, detail) = explain(code);
        let failure_class = if is_busy(code) { FailureClass::Busy } else { FailureClass::Failed };
        // A commit that failed for another reason may be found again when the file is next opened.
        ErrorMeaning { kind, detail, refused: is_busy(code), failure_class }
    }
}

fn code(error: &sqlx::Error) -> Option<ErrorCode> {
    let code = error.as_database_error()?.code()?.parse().ok()?;
    Some(rusqlite::ffi::Error::new(code).code)
}
