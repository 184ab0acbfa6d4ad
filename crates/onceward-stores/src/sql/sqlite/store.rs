//! The SQLite store: swaps, loads, and its two threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Hints, Id, Loaded, Page, Promises, Result, Scan,
    State, Store, StoreFuture, Swap, Swapped, Watch,
};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::errors::{failed, uncommitted, unopened};
use super::now::{self, Now};
use super::swap::{load, swap_now};
use super::thread::ConnectionThread;
use super::{scan, schema};
use crate::sql::Options;
use crate::sql::batch_answers::too_large;
use crate::sql::schema::{Migrated, Migrations};
use crate::sql::swap_kinds::columns;

/// SQLite takes no row of more than a thousand million bytes; this much is reserved for the other columns.
const RECORD_BYTES_MAX: usize = 1_000_000_000 - (64 << 10);

/// Receipts in an SQLite file.
pub struct SqliteStore {
    writer: ConnectionThread,
    reader: ConnectionThread,
}

impl SqliteStore {
    /// Opens a file, or makes it. The folder must be there.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let file = path.as_ref().to_owned();
        let opening = tokio::task::spawn_blocking(move || Self::open_now(&file, &options));
        let opened = opening.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        warn_if_open_to_others(path.as_ref());
        Ok(opened)
    }

    fn open_now(path: &Path, options: &Options) -> Result<Self> {
        let mut connection = connect(path, options.call_timeout())?;
        schema::prepare(&mut connection, options.migrations)?;
        now::learn(&connection).map_err(failed)?;
        let reader = connect(path, options.call_timeout())?;
        Ok(Self {
            writer: ConnectionThread::start("onceward-sqlite-writer", connection)?,
            reader: ConnectionThread::start("onceward-sqlite-reader", reader)?,
        })
    }

    /// Brings the tables of a file up to date, and says what was done.
    pub async fn migrate(path: impl AsRef<Path>) -> Result<Migrated> {
        let path: PathBuf = path.as_ref().to_owned();
        let migrating = tokio::task::spawn_blocking(move || {
            let mut connection = connect(&path, Options::default().call_timeout())?;
            schema::prepare(&mut connection, Migrations::Apply)
        });
        migrating.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

/// Opens a connection whose commits are durable.
#[doc(hidden)]
pub fn connect(path: &Path, busy: Duration) -> Result<Connection> {
    if path.as_os_str().is_empty() || path == Path::new(":memory:") {
        let detail = "`sqlite:` needs a file behind it, as in `sqlite:./receipts.db`";
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Only the owner may read receipts. SQLite gives its other files the mode of this one.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // If it cannot be made, SQLite says why.
        let _ = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    }
    let set_up = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(busy)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        Ok(connection)
    };
    set_up().map_err(|error| unopened(path, error))
}

/// A file that was there before keeps its mode: it may be a database of the application, shared on purpose.
fn warn_if_open_to_others(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(found) = std::fs::metadata(path) else { return };
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let (path, mode) = (path.display(), format!("{mode:04o}"));
            tracing::warn!(%path, mode, "other users may read this file of receipts; its mode should be 0600");
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// One transaction for the whole batch.
fn swap_all(connection: &mut Connection, batch: &[Swap]) -> Result<Vec<Swapped>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let swap_one = |swap| match too_large(swap, RECORD_BYTES_MAX) {
        Some(error) => Ok(Swapped::Failed(error)),
        None => swap_now(&transaction, swap),
    };
    let answers = batch.iter().map(swap_one).collect::<Result<Vec<_>>>()?;
    if answers.iter().any(|answer| matches!(answer, Swapped::Won(_))) {
        Transaction::commit(transaction).map_err(uncommitted)?;
    }
    Ok(answers)
}

impl Store for SqliteStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let batch = batch.to_vec();
        Box::pin(self.writer.call(move |connection| swap_all(connection, &batch)))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let ids = ids.to_vec();
        Box::pin(self.reader.call(move |connection| {
            let now = Now::read().earliest_us;
            ids.iter().map(|id| load(connection, columns(id), now)).collect()
        }))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        let query = query.clone();
        Box::pin(self.reader.call(move |connection| scan::scan(connection, &query)))
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        let promises = Promises::default()
            .with_durable(true)
            .with_atomic(true)
            .with_shared(true)
            .with_transactions(true)
            .with_clock(ClockSource::Store)
            .with_record_bytes_max(RECORD_BYTES_MAX);
        Caps::new("sqlite", promises).with_hints(
            Hints::default()
                .with_batches_in_flight(2)
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

#[cfg(all(test, unix))]
#[path = "store_test.rs"]
mod tests;
