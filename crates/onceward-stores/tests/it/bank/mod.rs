//! A database with a business table in it, on every engine and through every driver: what the tests of
//! transactions are written against, once.

mod mysql;
mod postgres;
mod process;
mod sqlite;
mod sqlx;

use std::future::Future;

use onceward::{Stopped, Transactions};
use onceward_stores::sql::SqlTransactions;

pub(crate) use mysql::MySqlBank;
pub(crate) use postgres::PostgresBank;
pub(crate) use process::{Process, Round, Then, ask, ask_under, claimed, first_of, ran, replay_of, said};
pub(crate) use sqlite::SqliteBank;
pub(crate) use sqlx::Through;

/// One such database. Its table `charges (name)` takes any key any number of times; `counters (name, count)` has a
/// row for each.
pub(crate) trait Bank: Send + Sync + Sized + 'static {
    /// Transactions of one process.
    type T: SqlTransactions<Tx: Send> + Clone + 'static;

    /// A fresh bank; `None` where there is no such server.
    fn open() -> Option<Self>;

    /// Where its receipts are.
    fn url(&self) -> String;

    /// The transactions of one more process.
    fn transactions(&self) -> impl Future<Output = Self::T> + Send;

    /// Runs SQL on another connection, and returns the first value.
    fn sql(&self, sql: &str) -> String;

    /// Writes a row of the business, as a user of the driver would.
    fn charge(tx: &Tx<Self>, key: &str) -> impl Future<Output = Result<(), Stopped>> + Send;

    /// Sends `COMMIT` or `ROLLBACK`, as misbehaving work would.
    fn say(tx: &Tx<Self>, word: &'static str) -> impl Future<Output = ()> + Send;

    /// Begins a transaction with the driver alone, does the round in it, and ends it as the round says.
    fn in_a_transaction_of_the_callers_own(
        &self,
        process: &Process<Self>,
        round: Round,
    ) -> impl Future<Output = ()> + Send;

    /// How often a key was charged.
    fn count(&self, key: &str) -> usize {
        self.sql(&format!("SELECT count(*) FROM charges WHERE name = '{key}'")).parse().unwrap()
    }
}

/// A transaction under way in a bank.
pub(crate) type Tx<B> = <<B as Bank>::T as Transactions>::Tx;

/// One test for each engine and driver, named after it.
macro_rules! on_every_engine {
    ($scenario:path) => {
        $crate::bank::on_every_engine!($scenario:
            postgres $crate::bank::PostgresBank,
            mysql $crate::bank::MySqlBank,
            sqlite $crate::bank::SqliteBank,
            sqlx_postgres $crate::bank::Through<$crate::bank::PostgresBank>,
            sqlx_mysql $crate::bank::Through<$crate::bank::MySqlBank>,
            sqlx_sqlite $crate::bank::Through<$crate::bank::SqliteBank>
        );
    };
    ($scenario:path: $($name:ident $bank:ty),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some(bank) = <$bank as $crate::bank::Bank>::open() else { return };
                $scenario(&bank).await;
            }
        )+
    };
}
pub(crate) use on_every_engine;
