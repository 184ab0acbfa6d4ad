//! The same banks through pools of sqlx.

use onceward::Stopped;
use onceward_stores::sql::sqlx::{SqlxTransactions, SqlxTx};
use sqlx::pool::PoolOptions;

use super::{Bank, MySqlBank, PostgresBank, Process, Round, SqliteBank};

/// A bank whose transactions are those of sqlx.
pub(crate) struct Through<B>(pub(crate) B);

/// Connections of one process.
const CONNECTIONS: u32 = 8;

macro_rules! bank {
    ($bank:ty, $database:ty, $insert:literal) => {
        impl Bank for Through<$bank> {
            type T = SqlxTransactions<$database>;

            fn open() -> Option<Self> {
                <$bank>::open().map(Self)
            }

            fn url(&self) -> String {
                self.0.url()
            }

            async fn transactions(&self) -> Self::T {
                let pool = PoolOptions::new().max_connections(CONNECTIONS).connect(&self.url()).await;
                SqlxTransactions::new(pool.unwrap())
            }

            fn sql(&self, sql: &str) -> String {
                self.0.sql(sql)
            }

            async fn charge(tx: &SqlxTx<$database>, key: &str) -> Result<(), Stopped> {
                sqlx::query($insert).bind(key).execute(&mut *tx.lock().await).await?;
                Ok(())
            }

            async fn say(tx: &SqlxTx<$database>, word: &'static str) {
                sqlx::raw_sql(word).execute(&mut *tx.lock().await).await.unwrap();
            }

            async fn in_a_transaction_of_the_callers_own(&self, process: &Process<Self>, round: Round) {
                let mut tx = process.transactions.pool().begin().await.unwrap();
                round.inside(process, &mut tx).await;
                if round.commits() { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
            }
        }
    };
}

bank!(PostgresBank, sqlx::Postgres, "INSERT INTO charges VALUES ($1)");
bank!(MySqlBank, sqlx::MySql, "INSERT INTO charges VALUES (?)");
bank!(SqliteBank, sqlx::Sqlite, "INSERT INTO charges VALUES (?1)");
