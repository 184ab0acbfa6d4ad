//! A bank in SQLite.

use std::path::PathBuf;

use onceward::Stopped;
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};

use super::{Bank, Process, Round};

/// A file of its own.
pub(crate) struct SqliteBank(tempfile::TempDir);

impl SqliteBank {
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("bank.db")
    }

    fn connection(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

impl Bank for SqliteBank {
    type T = SqliteTransactions;

    fn open() -> Option<Self> {
        let bank = Self(tempfile::tempdir().unwrap());
        let tables = "CREATE TABLE charges (name TEXT);
            CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL)";
        bank.connection().execute_batch(tables).unwrap();
        Some(bank)
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    async fn transactions(&self) -> SqliteTransactions {
        SqliteTransactions::open(self.path())
    }

    fn sql(&self, sql: &str) -> String {
        let connection = self.connection();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        if statement.column_count() == 0 {
            statement.execute([]).unwrap();
            return String::new();
        }
        match statement.query_row([], |row| row.get(0)).unwrap() {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    async fn charge(tx: &SqliteTx, key: &str) -> Result<(), Stopped> {
        tx.lock().execute("INSERT INTO charges VALUES (?1)", [key])?;
        Ok(())
    }

    async fn say(tx: &SqliteTx, word: &'static str) {
        tx.lock().execute_batch(word).unwrap();
    }

    async fn in_a_transaction_of_the_callers_own(&self, process: &Process<Self>, round: Round) {
        let mut connection = self.connection();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        round.inside(process, &mut connection).await;
        connection.execute_batch(if round.commits() { "COMMIT" } else { "ROLLBACK" }).unwrap();
    }
}
