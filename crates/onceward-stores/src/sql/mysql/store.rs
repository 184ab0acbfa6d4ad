//! The MySQL store: swaps, loads, and their connections.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Pool, PoolConstraints, PoolOpts, Row};
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Found, Hints, Id, IdentitySource, Loaded, Page,
    Promises, Result, Scan, State, Store, StoreFuture, Swap, Swapped, Version, Watch,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{self, StatementKind, pieces, record_bytes_max};
use super::errors::{
    CallEffect, failed, is_worth_repeating, timed_out, uncommitted, unconnected, unconnected_within,
};
use super::identity::MySqlIdentity;
use super::join::mark;
use super::{scan, schema, statements};
use crate::sql::batch_answers::BatchAnswers;
use crate::sql::error_text::{named, named_answers, server};
use crate::sql::row;
use crate::sql::schema::Migrated;
use crate::sql::swap_kinds::SwapKinds;
use crate::sql::{CALL_MAX, Options, TRIES_MAX};
use crate::tls::{SslMode, TlsSettings, is_local, warn_unencrypted};

/// Receipts in MySQL or MariaDB.
pub struct MySqlStore {
    pool: Pool,
    /// The name of the server in errors.
    server: String,
    call_timeout: Duration,
    connections: usize,
    record_bytes_max: usize,
}

impl MySqlStore {
    /// Opens the database that an address names, such as `mysql://user:password@host/database`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let opts = parse(url)?;
        warn_if_unencrypted(&opts);
        let mut store = Self {
            server: describe(&opts),
            pool: pool(opts, &options),
            call_timeout: options.call_timeout(),
            connections: options.connections.max(1),
            record_bytes_max: 0,
        };
        let mut conn = store.connection().await?;
        let prepared = timeout(CALL_MAX, async {
            schema::prepare(&mut conn, options.migrations).await?;
            let packet: mysql_async::Result<Option<usize>> =
                conn.query_first("SELECT @@max_allowed_packet").await;
            packet.map_err(|error| failed(CallEffect::Reads, error))
        });
        let packet = prepared.await.unwrap_or_else(|_| Err(timed_out(CallEffect::Writes, CALL_MAX)))?;
        store.record_bytes_max = record_bytes_max(packet.unwrap_or_default());
        drop(conn);
        Ok(store)
    }

    /// Brings the tables of a database up to date, and says what was done.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        let options = Options { connections: 1, ..Options::default() };
        let opts = parse(url)?;
        let server = describe(&opts);
        let pool = pool(opts, &options);
        let mut conn = pool.get_conn().await.map_err(|error| unconnected(&server, error))?;
        schema::prepare(&mut conn, options.migrations).await
    }

    /// Gives this database another identity, so that no entry of any front fits it: after it was restored from a backup.
    pub async fn renew_identity(url: &str) -> Result<()> {
        Self::migrate(url).await?;
        let opts = parse(url)?;
        let server = describe(&opts);
        let pool = pool(opts, &Options { connections: 1, ..Options::default() });
        let mut conn = pool.get_conn().await.map_err(|error| unconnected(&server, error))?;
        super::identity::renew(&mut conn).await
    }

    /// The identity of this database, for a [front](onceward::Front).
    pub fn identity(&self) -> Arc<dyn IdentitySource> {
        Arc::new(MySqlIdentity { pool: self.pool.clone(), server: self.server.clone() })
    }

    async fn connection(&self) -> Result<Conn> {
        match timeout(self.call_timeout, self.pool.get_conn()).await {
            Ok(conn) => conn.map_err(|error| unconnected(&self.server, error)),
            Err(_) => Err(unconnected_within(&self.server, self.call_timeout)),
        }
    }

    /// One statement that only reads.
    pub(super) async fn rows(&self, statement: &str, values: impl Into<Params> + Send) -> Result<Vec<Row>> {
        let mut conn = self.connection().await?;
        match timeout(self.call_timeout, conn.exec(statement, values.into())).await {
            Ok(Ok(rows)) => {
                conn.reset_connection(false);
                Ok(rows)
            }
            Ok(Err(error)) => Err(failed(CallEffect::Reads, error)),
            Err(_) => Err(timed_out(CallEffect::Reads, self.call_timeout)),
        }
    }

    /// Removes expired free rows; if other traffic blocks this, the next sweep does it.
    pub(super) async fn purge(&self, statement: &str, rows_max: i64) -> Result<()> {
        self.rows(statement, (rows_max,)).await.map(drop).or_else(|error| match error.kind() {
            ErrorKind::Unavailable => Ok(()),
            _ => Err(error),
        })
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let mut answers = BatchAnswers::new(batch, self.record_bytes_max);
        let kinds = SwapKinds::new(batch, answers.open(), Version(0));
        let mut failure: Option<Error> = None;
        for (kind, of) in [
            (StatementKind::Create, &kinds.create),
            (StatementKind::Replace, &kinds.replace),
            (StatementKind::Free, &kinds.free),
            (StatementKind::Check, &kinds.check),
        ] {
            for of in pieces(batch, of, self.record_bytes_max) {
                let swapped = match &failure {
                    None => self.swap_kind(batch, of, kind).await,
                    // Another part would probably fail in the same way, after the same wait.
                    Some(error) => Err(Error::new(error.kind(), "an earlier part of the batch failed")
                        .caused_by(error.clone())),
                };
                if let Err(error) = &swapped {
                    failure.get_or_insert_with(|| error.clone());
                }
                answers.add(of, swapped.map(|swapped| of.iter().copied().zip(swapped).collect()));
            }
        }
        answers.result()
    }

    async fn swap_kind(&self, batch: &[Swap], of: &[usize], kind: StatementKind) -> Result<Vec<Swapped>> {
        if kind == StatementKind::Check {
            let ids: Vec<&Id> = of.iter().map(|index| &batch[*index].id).collect();
            let found = self.load_all(&ids).await?;
            let answer = |found| match found {
                Ok(None) => Swapped::Won(Version(1)),
                Ok(found) => Swapped::Lost(found),
                Err(error) => Swapped::Failed(error),
            };
            return Ok(found.into_iter().map(answer).collect());
        }
        for _ in 0..TRIES_MAX {
            if let Some(rows) = self.swap_once(batch, of, kind).await? {
                return answers(rows, of.len(), kind);
            }
        }
        let detail =
            "the MySQL server kept undoing a batch in favour of others; is something else writing its rows?";
        Err(Error::new(ErrorKind::Conflict, detail))
    }

    /// `None` if the server rolled it back in favour of another transaction. A batch that times out before its commit
    /// was sent is certain to be rolled back by the server.
    async fn swap_once(&self, batch: &[Swap], of: &[usize], kind: StatementKind) -> Result<Option<Vec<Row>>> {
        let text = batch::write(batch, of, kind, &mark()?);
        let mut conn = self.connection().await?;
        let until = Instant::now() + self.call_timeout;
        let late = |call| timed_out(call, self.call_timeout);
        let rows = match timeout_at(until, write(&mut conn, text)).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) if is_worth_repeating(&error) => return Ok(None),
            Ok(Err(error)) => return Err(failed(CallEffect::Reads, error)),
            Err(_) => return Err(late(CallEffect::Reads)),
        };
        match timeout_at(until, conn.query_drop("COMMIT")).await {
            Ok(Ok(())) => {
                // There is nothing to clean up, so the connection can be reused as it is.
                conn.reset_connection(false);
                Ok(Some(rows))
            }
            Ok(Err(error)) if is_worth_repeating(&error) => Ok(None),
            Ok(Err(error)) => Err(uncommitted(error)),
            Err(_) => Err(late(CallEffect::Writes)),
        }
    }

    async fn load_all(&self, ids: &[&Id]) -> Result<Vec<Loaded>> {
        let mut all: Vec<Loaded> = ids.iter().map(|_| Ok(None)).collect();
        if ids.is_empty() {
            return Ok(all);
        }
        for row in self.rows(statements::LOAD, (batch::ids(ids.iter().copied()),)).await? {
            type Columns = (u64, i64, Vec<u8>, Option<i64>, i64, i64, Vec<u8>);
            let (number, version, state, remaining, created, updated, receipt): Columns =
                mysql_async::from_row_opt(row).map_err(row::damaged)?;
            let slot = usize::try_from(number - 1).ok().and_then(|at| all.get_mut(at));
            let slot = slot.ok_or_else(|| row::damaged("an answer is about no id that was asked for"))?;
            *slot = found(version, &state, [remaining, Some(created), Some(updated)], receipt).map(Some);
        }
        Ok(all)
    }
}

/// A record from its columns; the times are the time until it is due, since its creation and since its last write.
pub(super) fn found(
    version: i64,
    state: &[u8],
    [remaining_us, created_us, updated_us]: [Option<i64>; 3],
    receipt: Vec<u8>,
) -> Result<Found> {
    row::found(row::Columns {
        version,
        state: std::str::from_utf8(state).unwrap_or("\u{fffd}"),
        remaining_us,
        created_us: created_us.unwrap_or_default(),
        updated_us: updated_us.unwrap_or_default(),
        receipt: receipt.into(),
    })
}

/// The write, and reading back under its locks, in a transaction that is left open.
async fn write(conn: &mut Conn, text: String) -> mysql_async::Result<Vec<Row>> {
    let written = async {
        let mut results = conn.query_iter(text).await?;
        results.collect::<Row>().await?; // of the beginning: nothing
        results.collect::<Row>().await?; // of the write: nothing
        results.collect().await
    };
    let rows = written.await;
    if rows.is_err() {
        // If this fails too, the pool resets the connection, which rolls back.
        let _ = conn.query_drop("ROLLBACK").await;
    }
    rows
}

fn answers(rows: Vec<Row>, count: usize, kind: StatementKind) -> Result<Vec<Swapped>> {
    let mut answers: Vec<Swapped> = (0..count).map(|_| Swapped::Lost(None)).collect();
    for row in rows {
        type Columns = (u64, bool, i64, Vec<u8>, Option<i64>, i64, i64, Option<Vec<u8>>);
        let (number, won, version, state, remaining, created, updated, receipt): Columns =
            mysql_async::from_row_opt(row).map_err(unclear)?;
        let answer = usize::try_from(number - 1).ok().and_then(|at| answers.get_mut(at));
        let answer = answer.ok_or_else(|| unclear("an answer is about no swap of the batch"))?;
        *answer = if won {
            Swapped::Won(row::version(version).map_err(Error::maybe_applied)?)
        } else {
            let times = [remaining, Some(created), Some(updated)];
            row::lost(found(version, &state, times, receipt.unwrap_or_default()))
        };
    }
    if kind == StatementKind::Create {
        for answer in answers.iter_mut().filter(|answer| matches!(answer, Swapped::Lost(None))) {
            *answer = Swapped::Failed(unclear("a claim neither won nor lost"));
        }
    }
    Ok(answers)
}

/// The error for an answer to a write that cannot be understood.
fn unclear(why: impl std::fmt::Display) -> Error {
    row::damaged(why).maybe_applied()
}

impl Store for MySqlStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move { named_answers(&self.server, self.swap_all(batch).await) })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let loaded = self.load_all(&ids.iter().collect::<Vec<_>>()).await;
            loaded.map_err(|error| named(&self.server, error))
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move { scan::scan(self, query).await.map_err(|error| named(&self.server, error)) })
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
            .with_record_bytes_max(self.record_bytes_max);
        Caps::new("mysql", promises).with_hints(
            Hints::default()
                .with_batches_in_flight((self.connections / 2).max(1))
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").field("connections", &self.connections).finish_non_exhaustive()
    }
}

pub(super) fn parse(url: &str) -> Result<Opts> {
    // The front is opened by `open_with_metrics`.
    let (url, _) = crate::open::front::take(url)?;
    let (url, tls) = TlsSettings::take(&url)?;
    let opts = Opts::from_url(&url).map_err(|error| {
        let detail =
            "this is no address of a MySQL database; it looks like mysql://user:password@host:3306/database";
        Error::new(ErrorKind::Invalid, detail).caused_by(error)
    })?;
    // The driver cannot begin without TLS and go on with it where the server can: what is preferred is not tried.
    let mode = tls.usable_mode(SslMode::Prefer)?;
    #[cfg(feature = "tls")]
    if mode >= SslMode::Require {
        return Ok(OptsBuilder::from_opts(opts).ssl_opts(super::tls::options(&tls, mode)?).into());
    }
    let _ = mode;
    Ok(opts)
}

/// Says so if the address leads to another machine without TLS.
pub(super) fn warn_if_unencrypted(opts: &Opts) {
    let is_local = opts.socket().is_some() || is_local(opts.ip_or_hostname());
    if !is_local && opts.ssl_opts().is_none() {
        warn_unencrypted(&describe(opts));
    }
}

/// The server and the database as errors name them, such as "MySQL at 127.0.0.1:3306, database `app`".
pub(super) fn describe(opts: &Opts) -> String {
    let host = match opts.socket() {
        Some(socket) => socket.to_owned(),
        None => format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port()),
    };
    server("MySQL", &host, opts.db_name())
}

/// A pool for tables other than the receipts, and the name of its server. For the other crates of this project.
#[doc(hidden)]
pub fn pool_of(url: &str, options: &Options) -> Result<(Pool, String)> {
    let opts = parse(url)?;
    warn_if_unencrypted(&opts);
    let server = describe(&opts);
    Ok((pool(opts, options), server))
}

pub(super) fn pool(opts: Opts, options: &Options) -> Pool {
    let seconds = options.call_timeout().as_secs().max(1);
    // The lower bound is what the pool keeps for the next one; it opens none in advance.
    let connections = options.connections.max(1);
    let constraints = PoolConstraints::new(connections, connections).expect("a number is not above itself");
    let opts = OptsBuilder::from_opts(opts)
        .pool_opts(PoolOpts::default().with_constraints(constraints))
        .setup(vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!("SET SESSION innodb_lock_wait_timeout = {seconds}"),
        ]);
    Pool::new(opts)
}
