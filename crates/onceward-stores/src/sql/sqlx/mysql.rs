//! MySQL and MariaDB through sqlx.

use sqlx::mysql::MySqlDatabaseError;
use sqlx::{MySql, MySqlConnection, SqlStr};

use super::driver::{Driver, ErrorMeaning, cells, fetch};
use crate::sql::join::{Cell, Dialect, Value};
use crate::sql::mysql::errors::{LOCK_WAIT_TIMEOUT, explain, is_undone};
use crate::sql::transactions::FailureClass;

impl Driver for MySql {
    const DIALECT: Dialect = Dialect::MySql;
    const BEGIN: SqlStr = SqlStr::from_static("START TRANSACTION");

    async fn fetch<'a>(
        connection: &'a mut MySqlConnection,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> sqlx::Result<Option<Vec<Cell>>> {
        let row = fetch!(connection, statement, values)?;
        Ok(row.as_ref().map(|row| {
            cells!(row, i64 => Cell::Int,
                u64 => |number| i64::try_from(number).map_or(Cell::Null, Cell::Int),
                String => Cell::Text, Vec<u8> => Cell::Bytes)
        }))
    }

    fn meaning(error: &sqlx::Error) -> ErrorMeaning {
        let said = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        let code = said.map(MySqlDatabaseError::number);
        let (kind, detail) = explain(code);
        let failure_class = match code {
            Some(LOCK_WAIT_TIMEOUT) => FailureClass::Busy,
            Some(code) if is_undone(code) => FailureClass::Undone,
            _ => FailureClass::Failed,
        };
        // Even an error of a commit may come from a connection that was waiting for a replica, with the commit on disk.
        ErrorMeaning { kind, detail, refused: false, failure_class }
    }
}
