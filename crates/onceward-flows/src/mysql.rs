//! The tables of messages in MySQL and MariaDB: migrations, and what relays and consumers do beside the user's
//! transactions. Connections read what was committed when a statement begins (READ COMMITTED), and lock no gaps.

mod dead_letters;
mod outbox;
mod parts;
mod schema;
mod statements;
mod tries;

use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, Result};
use onceward_stores::mysql_async::{self, Conn, Params, Pool};
use onceward_stores::sql::mysql::{call_failed, pool_of, unconnected};
use onceward_stores::sql::{Migrations, Options, named};

use crate::tables::Migrated;

pub(crate) use statements::STATEMENTS;

/// Longest time for one statement, and for a connection.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 4;
/// How often a transaction that the server undid in favour of another one is repeated.
const TRIES_MAX: usize = 10;

/// The tables for messages in one database of MySQL or MariaDB.
#[derive(Clone)]
pub(crate) struct MySqlTables {
    pool: Pool,
    server: Arc<str>,
}

/// Runs a block in a transaction, and again if the server undoes it in favour of another one. Inside, errors are the
/// driver's.
macro_rules! transaction {
    ($tables:expr, $conn:ident => $work:block) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let mut connection = $tables.connection().await?;
            let done: mysql_async::Result<_> = async {
                let $conn = &mut connection;
                $conn.query_drop("START TRANSACTION").await?;
                let done = $work;
                $conn.query_drop("COMMIT").await?;
                Ok(done)
            }
            .await;
            match done {
                Ok(done) => {
                    connection.reset_connection(false);
                    break Ok(done);
                }
                // The pool resets the connection, which rolls back.
                Err(error) if $crate::mysql::is_undone(&error) && tries < $crate::mysql::TRIES_MAX => {}
                Err(error) => break Err($crate::mysql::written(error)),
            }
        }
    }};
}
use transaction;

impl MySqlTables {
    pub(crate) async fn open(url: &str, migrations: Migrations) -> Result<Self> {
        let options = Options::default().with_connections(CONNECTIONS).with_call_timeout(CALL_MAX);
        let (pool, server) = pool_of(url, &options)?;
        let tables = Self { pool, server: server.into() };
        tables.prepare(migrations).await.map_err(|error| named(&tables.server, error))?;
        Ok(tables)
    }

    /// The server and the database, for errors.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) async fn prepare(&self, migrations: Migrations) -> Result<Migrated> {
        schema::prepare(&mut self.connection().await?, migrations).await
    }

    async fn connection(&self) -> Result<Conn> {
        match tokio::time::timeout(CALL_MAX, self.pool.get_conn()).await {
            Ok(conn) => conn.map_err(|error| unconnected(&self.server, error)),
            Err(_) => Err(Error::new(
                onceward::ErrorKind::Unavailable,
                format!("no connection to {} within {CALL_MAX:?}; are there enough?", self.server),
            )),
        }
    }
}

impl std::fmt::Debug for MySqlTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlTables").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A statement that only reads has failed.
fn read(error: mysql_async::Error) -> Error {
    call_failed(false, error)
}

/// A write has failed.
fn written(error: mysql_async::Error) -> Error {
    call_failed(true, error)
}

/// Whether the server rolled a transaction back in favour of another one.
fn is_undone(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(said) if [1213, 1020].contains(&said.code))
}

/// Numbers as a list in a statement; they need no quotes.
fn list<N: ToString>(numbers: impl IntoIterator<Item = N>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    if numbers.is_empty() { "NULL".to_owned() } else { numbers.join(", ") }
}

/// Texts are compared as bytes.
fn params<'a>(values: impl IntoIterator<Item = Param<'a>>) -> Params {
    let value = |value| match value {
        Param::Text(text) => mysql_async::Value::Bytes(text.as_bytes().to_vec()),
        Param::Maybe(text) => text.map_or(mysql_async::Value::NULL, |text| text.as_bytes().to_vec().into()),
        Param::Bytes(bytes) => bytes.to_vec().into(),
        Param::Int(number) => number.into(),
    };
    Params::Positional(values.into_iter().map(value).collect())
}

/// A value for a placeholder.
#[derive(Clone, Copy)]
enum Param<'a> {
    Text(&'a str),
    Maybe(Option<&'a str>),
    Bytes(&'a [u8]),
    Int(i64),
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
