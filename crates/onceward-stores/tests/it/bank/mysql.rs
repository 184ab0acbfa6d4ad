//! A bank in MySQL; `MariaDB` represents both.

use mysql_async::prelude::Queryable;
use onceward::Stopped;
use onceward_stores::sql::mysql::{MySqlTransactions, MySqlTx};

use super::{Bank, Process, Round};
use crate::servers::MariaDb;

/// A database of its own on the shared server.
pub(crate) struct MySqlBank {
    server: &'static MariaDb,
    database: String,
}

impl Bank for MySqlBank {
    type T = MySqlTransactions;

    fn open() -> Option<Self> {
        let server = MariaDb::shared()?;
        let bank = Self { server, database: server.fresh() };
        bank.sql("CREATE TABLE charges (name VARCHAR(64))");
        bank.sql("CREATE TABLE counters (name VARCHAR(64) PRIMARY KEY, count BIGINT NOT NULL)");
        Some(bank)
    }

    fn url(&self) -> String {
        self.server.url(&self.database)
    }

    async fn transactions(&self) -> MySqlTransactions {
        MySqlTransactions::open(&self.url(), 8).unwrap()
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.database, sql)
    }

    async fn charge(tx: &MySqlTx, key: &str) -> Result<(), Stopped> {
        tx.lock().await.exec_drop("INSERT INTO charges VALUES (?)", (key,)).await?;
        Ok(())
    }

    async fn say(tx: &MySqlTx, word: &'static str) {
        tx.lock().await.query_drop(word).await.unwrap();
    }

    async fn in_a_transaction_of_the_callers_own(&self, process: &Process<Self>, round: Round) {
        let mut conn = mysql_async::Conn::from_url(self.url()).await.unwrap();
        let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
        round.inside(process, &mut tx).await;
        if round.commits() { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
}
