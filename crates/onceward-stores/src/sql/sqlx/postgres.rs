//! PostgreSQL through sqlx.

use sqlx::postgres::{PgDatabaseError, PgSeverity};
use sqlx::{PgConnection, Postgres, SqlStr};
use tokio_postgres::error::SqlState;

use super::driver::{Driver, ErrorMeaning, cells, fetch};
use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::postgres::errors::{explain, is_undone};
use crate::sql::transactions::FailureClass;

impl Driver for Postgres {
    const DIALECT: Dialect = Dialect::Postgres;
    const BEGIN: SqlStr = SqlStr::from_static("BEGIN");

    async fn fetch<'a>(
        connection: &'a mut PgConnection,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> sqlx::Result<Option<Vec<Cell>>> {
        let row = fetch!(connection, statement, values)?;
        Ok(row.as_ref().map(|row| {
            cells!(row, i64 => Cell::Int, i32 => |number| Cell::Int(number.into()),
                String => Cell::Text, Vec<u8> => Cell::Bytes)
        }))
    }

    fn meaning(error: &sqlx::Error) -> ErrorMeaning {
        let said = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        let code = said.map(|said| SqlState::from_code(said.code()));
        let (kind, detail) = explain(code.as_ref());
        let failure_class = match &code {
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => FailureClass::Busy,
            Some(code) if is_undone(code) => FailureClass::Undone,
            _ => FailureClass::Failed,
        };
        // A fatal error may have hit a connection that was waiting for a standby, with its commit on disk.
        let refused = said.is_some_and(|said| said.severity() == PgSeverity::Error);
        ErrorMeaning { kind, detail, refused, failure_class }
    }
}
