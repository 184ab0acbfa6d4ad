//! A bank in PostgreSQL.

use onceward::Stopped;
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};

use super::{Bank, Process, Round};
use crate::servers::Postgres;

/// A database of its own on the shared server.
pub(crate) struct PostgresBank {
    server: &'static Postgres,
    database: String,
}

impl Bank for PostgresBank {
    type T = PostgresTransactions;

    fn open() -> Option<Self> {
        let server = Postgres::shared()?;
        let bank = Self { server, database: server.fresh() };
        bank.sql("CREATE TABLE charges (name text)");
        bank.sql("CREATE TABLE counters (name text PRIMARY KEY, count bigint NOT NULL)");
        Some(bank)
    }

    fn url(&self) -> String {
        self.server.url(&self.database)
    }

    async fn transactions(&self) -> PostgresTransactions {
        PostgresTransactions::open(&self.url(), 8).unwrap()
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.database, sql)
    }

    async fn charge(tx: &PostgresTx, key: &str) -> Result<(), Stopped> {
        tx.execute("INSERT INTO charges VALUES ($1)", &[&key]).await?;
        Ok(())
    }

    async fn say(tx: &PostgresTx, word: &'static str) {
        tx.batch_execute(word).await.unwrap();
    }

    async fn in_a_transaction_of_the_callers_own(&self, process: &Process<Self>, round: Round) {
        let (mut client, connection) =
            tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut tx = client.transaction().await.unwrap();
        round.inside(process, &mut tx).await;
        if round.commits() { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
}
