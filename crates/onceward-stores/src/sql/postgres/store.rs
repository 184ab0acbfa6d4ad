//! The PostgreSQL store: its connections, calls and loads. Swaps are in `swap.rs` and `single_row.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, Found, Hints, Id, IdentitySource, Loaded, Page, Promises,
    Result, Scan, State, Store, StoreFuture, Swap, Swapped, Version, Watch,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Socket};

use super::columns::{DigestColumns, IdColumns};
use super::connect::{counted_pool, describe, is_remote, parse, pool, set_up};
use super::ctid_cache::{Ctid, CtidCache};
use super::errors::{CallEffect, failed, is_worth_repeating, timed_out, unconnected};
use super::identity::PostgresIdentity;
use super::sweep::SweepPositions;
use super::take::TakePosition;
use super::{scan, schema, server_check, statements};
use crate::sql::error_text::{named, named_answers};
use crate::sql::row;
use crate::sql::schema::Migrated;
use crate::sql::{Options, TRIES_MAX};

/// The server takes no value of a gigabyte or more, nor a message with one in it.
pub(super) const RECORD_BYTES_MAX: usize = (1 << 30) - (16 << 20);
/// Where the columns of a record begin in the answer to a swap or a load.
pub(super) const FOUND_AT: usize = 5;

/// Receipts in PostgreSQL.
pub struct PostgresStore {
    pool: Pool,
    /// How many connections the pool has opened.
    opened: Arc<AtomicU64>,
    /// The name of the server in errors.
    server: String,
    call_timeout: Duration,
    connections: usize,
    /// The highest version that this process has seen: the server's clock has reached it. Versions
    /// continue from it even if another server, whose clock is slow, takes over.
    clock: AtomicU64,
    /// Where the next scan of what is due begins.
    pub(super) positions: SweepPositions,
    pub(super) take_position: TakePosition,
    pub(super) ctids: CtidCache,
}

impl PostgresStore {
    /// Opens the database that an address names, such as `postgres://user:password@host/database`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let (config, tls) = parse(url)?;
        Self::open_with(config, tls, options).await
    }

    /// Opens a database over a connection that needs more than an address can say, such as a key in hardware.
    pub async fn open_with<T>(config: Config, tls: T, options: Options) -> Result<Self>
    where
        T: tokio_postgres::tls::MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let is_remote = is_remote(&config);
        let opened = Arc::default();
        let store = Self {
            server: describe(&config),
            pool: counted_pool(config, tls, &options, &set_up(options.call_timeout()), Arc::clone(&opened)),
            opened,
            call_timeout: options.call_timeout(),
            connections: options.connections.max(1),
            clock: AtomicU64::new(0),
            positions: SweepPositions::default(),
            take_position: TakePosition::default(),
            ctids: CtidCache::default(),
        };
        server_check::is_session(&store.pool, &store.server).await?;
        store.prepare(options).await?;
        if let Ok(connection) = store.pool.get().await {
            server_check::say_losses(&connection, &store.server).await;
        }
        if is_remote && !store.is_encrypted().await {
            crate::tls::warn_unencrypted(&store.server);
        }
        Ok(store)
    }

    /// Brings the tables of a database up to date, and says what was done.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        let options = Options { connections: 1, ..Options::default() };
        let (config, tls) = parse(url)?;
        let server = describe(&config);
        let pool = pool(config, tls, &options, &set_up(options.call_timeout()));
        server_check::is_session(&pool, &server).await?;
        let mut connection = pool.get().await.map_err(|error| unconnected(&server, error))?;
        schema::prepare(&mut connection, options.migrations).await
    }

    /// Gives this database another identity, so that no entry of any front fits it: after it was restored from a backup.
    pub async fn renew_identity(url: &str) -> Result<()> {
        Self::migrate(url).await?;
        let options = Options { connections: 1, ..Options::default() };
        let (config, tls) = parse(url)?;
        let server = describe(&config);
        let pool = pool(config, tls, &options, &set_up(options.call_timeout()));
        let connection = pool.get().await.map_err(|error| unconnected(&server, error))?;
        super::identity::renew(&connection).await
    }

    /// The identity of this database, for a [front](onceward::Front).
    pub fn identity(&self) -> Arc<dyn IdentitySource> {
        let (pool, server, opened) = (self.pool.clone(), self.server.clone(), Arc::clone(&self.opened));
        Arc::new(PostgresIdentity { pool, server, opened })
    }

    /// Whether the server says that a connection of ours is encrypted.
    async fn is_encrypted(&self) -> bool {
        const ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let rows = self.call(CallEffect::Reads, ENCRYPTED, &[]).await.unwrap_or_default();
        rows.first().is_some_and(|row| row.get(0))
    }

    async fn prepare(&self, options: Options) -> Result<Migrated> {
        let mut connection = self.pool.get().await.map_err(|error| unconnected(&self.server, error))?;
        let preparing = schema::prepare(&mut connection, options.migrations);
        let prepared = tokio::time::timeout(crate::sql::CALL_MAX, preparing).await;
        prepared.unwrap_or_else(|_| Err(timed_out(CallEffect::Writes, crate::sql::CALL_MAX)))
    }

    /// One statement, one answer: within the time limit, with retries after a deadlock or serialization failure.
    pub(super) async fn call(
        &self,
        call: CallEffect,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        for _ in 1..TRIES_MAX {
            match self.call_once(call, statement, parameters).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_worth_repeating(&error) => {}
                Err(error) => return Err(failed(call, error)),
            }
        }
        self.call_once(call, statement, parameters).await?.map_err(|error| failed(call, error))
    }

    async fn call_once(
        &self,
        call: CallEffect,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let connection = self.connection().await?;
        let answer = tokio::time::timeout(self.call_timeout, async {
            let prepared = connection.prepare_cached(statement).await?;
            connection.query(&prepared, parameters).await
        });
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => {
                // The answer may still arrive later, so this connection is not used again.
                drop(Object::take(connection));
                Err(timed_out(call, self.call_timeout))
            }
        }
    }

    pub(super) async fn connection(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| unconnected(&self.server, error))
    }

    pub(super) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    pub(super) fn clock(&self) -> Version {
        Version(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn clock_us(&self) -> i64 {
        i64::try_from(self.clock().0).unwrap_or(0)
    }

    /// Caches the ctids of the claims that have won.
    pub(super) fn note<'a>(&self, claims: impl Iterator<Item = (&'a Id, &'a Swapped, Ctid)>) {
        self.ctids.note(claims.filter_map(|(id, swapped, ctid)| match swapped {
            Swapped::Won(version) => Some((id.clone(), *version, ctid)),
            Swapped::Lost(_) | Swapped::Failed(_) => None,
        }));
    }

    pub(super) fn won(&self, version: i64) -> Result<Swapped> {
        let version = row::version(version).map_err(Error::maybe_applied)?;
        self.clock.fetch_max(version.0, Ordering::Relaxed);
        Ok(Swapped::Won(version))
    }

    pub(super) async fn load_all(&self, ids: &[&Id]) -> Result<Vec<Loaded>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = IdColumns::of(ids);
        let DigestColumns { highs, middles, lows } = &ids.numbers;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [highs, middles, lows, &ids.scopes, &ids.operations, &ids.keys];
        let rows = self.call(CallEffect::Reads, statements::LOAD, &parameters).await?;
        let mut all: Vec<Loaded> = ids.keys.iter().map(|_| Ok(None)).collect();
        let indexes: Vec<usize> = (0..all.len()).collect();
        for row in &rows {
            all[batch_index(&indexes, row.get(0))?] = found(row, FOUND_AT).map(Some);
        }
        Ok(all)
    }
}

impl Store for PostgresStore {
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

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        let taken = self.take_due(state, limit, choose);
        Some(Box::pin(async move { named_answers(&self.server, taken.await) }))
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
        // While one waits for the disk the other computes. With more of them each carries less, and
        // what a statement and a commit cost by themselves is shared by fewer. A batch of claims and
        // completions takes two connections; the rest are for loads and scans.
        let batches_in_flight = (self.connections / 2).clamp(1, 2);
        Caps::new("postgres", promises).with_hints(
            Hints::default()
                .with_batches_in_flight(batches_in_flight)
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// The index in the batch of the swap with this number in the statement.
pub(super) fn batch_index(of: &[usize], number: i64) -> Result<usize> {
    let index = usize::try_from(number - 1).ok().and_then(|at| of.get(at).copied());
    index.ok_or_else(no_such_swap)
}

pub(super) fn no_such_swap() -> Error {
    row::damaged("an answer is about no swap of the batch").maybe_applied()
}

/// The record in a row, whose columns begin at this one.
pub(super) fn found(row: &Row, at: usize) -> Result<Found> {
    row::found(row::Columns {
        version: row.get(at),
        state: row.get(at + 1),
        remaining_us: row.get(at + 2),
        created_us: row.get(at + 3),
        updated_us: row.get(at + 4),
        receipt: row.get::<_, Vec<u8>>(at + 5).into(),
    })
}
