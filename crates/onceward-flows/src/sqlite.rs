//! The tables of messages in an SQLite file: migrations, and what relays and consumers do beside the user's transactions.
//!
//! One connection writes and one reads, so that reading never waits for a writer. A write waits while an effect is open,
//! because a file has one writer at a time: it asks again every half millisecond, so that it comes in between two effects.
//! An effect that takes longer than the lease of its part therefore ends the lease. It does no harm (no other process
//! can write meanwhile, and the fence is compared in the effect), but the part is then opened again: keep effects short
//! here.

mod dead_letters;
mod outbox;
mod parts;
mod schema;
mod statements;
mod tries;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onceward::{Error, ErrorKind, Result};
use onceward_stores::rusqlite::{self, Connection, Transaction, TransactionBehavior};
use onceward_stores::sql::Migrations;
use onceward_stores::sql::sqlite::{connect, failed, uncommitted};

use crate::tables::Migrated;

pub(crate) use statements::STATEMENTS;

/// Longest time for one call.
const CALL_MAX: Duration = Duration::from_secs(30);
/// A writer asks this often whether the file is free.
const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// The tables for messages in one SQLite file.
#[derive(Clone)]
pub(crate) struct SqliteTables {
    writer: Arc<Mutex<Connection>>,
    reader: Arc<Mutex<Connection>>,
    file: Arc<str>,
}

impl SqliteTables {
    pub(crate) async fn open(path: &str, migrations: Migrations) -> Result<Self> {
        let file: Arc<str> = path.into();
        let tables = blocking(move || {
            let writer = connect(Path::new(&*file), CALL_MAX)?;
            writer.busy_handler(Some(wait)).map_err(failed)?;
            let reader = connect(Path::new(&*file), CALL_MAX)?;
            Ok(Self { writer: Arc::new(Mutex::new(writer)), reader: Arc::new(Mutex::new(reader)), file })
        })
        .await?;
        tables.prepare(migrations).await?;
        Ok(tables)
    }

    pub(crate) async fn prepare(&self, migrations: Migrations) -> Result<Migrated> {
        let writer = Arc::clone(&self.writer);
        blocking(move || {
            schema::prepare(&mut writer.lock().unwrap_or_else(PoisonError::into_inner), migrations)
        })
        .await
    }

    /// Reads, in one snapshot.
    async fn read<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let reader = Arc::clone(&self.reader);
        blocking(move || {
            let mut connection = reader.lock().unwrap_or_else(PoisonError::into_inner);
            work(&connection.transaction().map_err(failed)?)
        })
        .await
    }

    /// Writes, in one transaction; an error undoes it.
    async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let writer = Arc::clone(&self.writer);
        blocking(move || {
            let mut connection = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
            let result = work(&tx)?;
            tx.commit().map_err(uncommitted)?;
            Ok(result)
        })
        .await
    }
}

impl std::fmt::Debug for SqliteTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTables").field("file", &self.file).finish_non_exhaustive()
    }
}

/// One statement that is kept prepared. Returns the number of rows that it has changed.
fn execute(tx: &Transaction<'_>, statement: &str, values: impl rusqlite::Params) -> Result<usize> {
    tx.prepare_cached(statement).and_then(|mut statement| statement.execute(values)).map_err(failed)
}

/// The rows of a statement.
fn rows<R>(
    tx: &Transaction<'_>,
    statement: &str,
    values: impl rusqlite::Params,
    row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<R>,
) -> Result<Vec<R>> {
    let mut statement = tx.prepare_cached(statement).map_err(failed)?;
    statement.query_map(values, row).and_then(Iterator::collect).map_err(failed)
}

/// The only column of the first row.
fn value<R: rusqlite::types::FromSql>(
    tx: &Transaction<'_>,
    statement: &str,
    values: impl rusqlite::Params,
) -> Result<Option<R>> {
    Ok(rows(tx, statement, values, |row| row.get(0))?.into_iter().next())
}

/// The machine's clock, in microseconds.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Whether to go on waiting for the writer of the file.
fn wait(asked: i32) -> bool {
    std::thread::sleep(BUSY_PAUSE);
    u128::from(asked.unsigned_abs()) * BUSY_PAUSE.as_micros() < CALL_MAX.as_micros()
}

async fn blocking<R: Send + 'static>(work: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| match panic.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "the runtime is shutting down").maybe_applied()),
    })
}
