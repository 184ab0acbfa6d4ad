//! SQLite through sqlx.

use rusqlite::ErrorCode;
use sqlx::{SqlStr, Sqlite, SqliteConnection};

use super::driver::{Driver, Said, cells, fetch};
use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::sqlite::fault::{explain, is_busy};
use crate::sql::transactions::Fate;

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

    fn said(error: &sqlx::Error) -> Said {
        let code = code(error);
        let (kind, detail) = explain(code);
        let fate = if is_busy(code) { Fate::Busy } else { Fate::Failed };
        // A commit that failed for another reason may be found again when the file is next opened.
        Said { kind, detail, refused: is_busy(code), fate }
    }
}

fn code(error: &sqlx::Error) -> Option<ErrorCode> {
    let code = error.as_database_error()?.code()?.parse().ok()?;
    Some(rusqlite::ffi::Error::new(code).code)
}
