//! Receipts in a sqlx transaction that the caller holds.

use onceward::Result;
use sqlx::Transaction;
use sqlx::pool::PoolConnection;

use super::driver::{CallStage, Driver, failed};
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};

impl<DB: Driver> SqlTransaction for Transaction<'_, DB> {
    fn dialect(&self) -> Dialect {
        DB::DIALECT
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch::<DB>(self, statement, values).await
    }
}

/// With a transaction begun on it.
impl<DB: Driver> SqlTransaction for PoolConnection<DB> {
    fn dialect(&self) -> Dialect {
        DB::DIALECT
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch::<DB>(self, statement, values).await
    }
}

macro_rules! connection {
    ($feature:literal, $database:ty, $connection:ty) => {
        /// With a transaction begun on it.
        #[cfg(feature = $feature)]
        impl SqlTransaction for $connection {
            fn dialect(&self) -> Dialect {
                <$database>::DIALECT
            }

            async fn fetch<'a>(
                &'a mut self,
                statement: &'a str,
                values: &'a [Value<'a>],
            ) -> Result<Option<Vec<Cell>>> {
                fetch::<$database>(self, statement, values).await
            }
        }
    };
}
connection!("sqlx-mysql", sqlx::MySql, sqlx::MySqlConnection);
connection!("sqlx-postgres", sqlx::Postgres, sqlx::PgConnection);
connection!("sqlx-sqlite", sqlx::Sqlite, sqlx::SqliteConnection);

pub(super) async fn fetch<DB: Driver>(
    connection: &mut DB::Connection,
    statement: &str,
    values: &[Value<'_>],
) -> Result<Option<Vec<Cell>>> {
    DB::fetch(connection, statement, values).await.map_err(|error| failed::<DB>(CallStage::Inside, error))
}
