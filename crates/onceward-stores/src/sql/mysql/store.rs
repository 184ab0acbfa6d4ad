//! Swaps and loads, and the connections they go over.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Pool, PoolConstraints, PoolOpts, Row};
use onceward::{
    Applied, Caps, Error, ErrorKind, Found, Fut, Id, Page, Result, Scan, Store, Swap, Swapped, Version,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{self, Kind, pieces};
use super::fault::{Call, failed, is_worth_repeating, timed_out, uncommitted};
use super::join::mark;
use super::{scan, schema, statements};
use crate::sql::kinds::Kinds;
use crate::sql::row;
use crate::sql::schema::Migrated;
use crate::sql::{CALL_MAX, Options, TRIES_MAX};

/// Receipts in MySQL or MariaDB.
pub struct MySqlStore {
    pool: Pool,
    call_timeout: Duration,
    connections: usize,
}

impl MySqlStore {
    /// Opens the database that an address names, such as `mysql://user:password@host/database`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let store = Self {
            pool: pool(url, &options)?,
            call_timeout: options.call_timeout(),
            connections: options.connections.max(1),
        };
        let mut conn = store.connection().await?;
        let prepared = timeout(CALL_MAX, schema::prepare(&mut conn, options.migrations)).await;
        prepared.unwrap_or_else(|_| Err(timed_out(Call::Writes, CALL_MAX)))?;
        drop(conn);
        Ok(store)
    }

    /// Brings the tables of a database up to date, and says what was done.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        let options = Options { connections: 1, ..Options::default() };
        let pool = pool(url, &options)?;
        let mut conn = pool.get_conn().await.map_err(|error| failed(Call::Reads, error))?;
        schema::prepare(&mut conn, options.migrations).await
    }

    async fn connection(&self) -> Result<Conn> {
        match timeout(self.call_timeout, self.pool.get_conn()).await {
            Ok(conn) => conn.map_err(|error| failed(Call::Reads, error)),
            Err(_) => Err(timed_out(Call::Reads, self.call_timeout)),
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
            Ok(Err(error)) => Err(failed(Call::Reads, error)),
            Err(_) => Err(timed_out(Call::Reads, self.call_timeout)),
        }
    }

    /// Clears away free rows; if traffic is in the way, the next sweep does it.
    pub(super) async fn purge(&self, statement: &str, rows_max: i64) -> Result<()> {
        self.rows(statement, (rows_max,)).await.map(drop).or_else(|error| match error.kind() {
            ErrorKind::Unavailable => Ok(()),
            _ => Err(error),
        })
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let kinds = Kinds::new(batch, 0..batch.len(), Version(0));
        let mut answers: Vec<Option<Swapped>> = batch.iter().map(|_| None).collect();
        let mut wrote = false;
        for (kind, of) in [
            (Kind::Create, &kinds.create),
            (Kind::Replace, &kinds.replace),
            (Kind::Free, &kinds.free),
            (Kind::Check, &kinds.check),
        ] {
            for of in pieces(batch, of) {
                let swapped = self.swap_kind(batch, of, kind).await;
                let swapped = swapped.map_err(|error| {
                    if wrote || error.applied() == Applied::Maybe { error.maybe_applied() } else { error }
                })?;
                wrote |= swapped.iter().any(|swapped| matches!(swapped, Swapped::Won(_)));
                for (place, swapped) in of.iter().zip(swapped) {
                    answers[*place] = Some(swapped);
                }
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("each swap is of one kind")).collect())
    }

    async fn swap_kind(&self, batch: &[Swap], of: &[usize], kind: Kind) -> Result<Vec<Swapped>> {
        if kind == Kind::Check {
            let ids: Vec<&Id> = of.iter().map(|place| &batch[*place].id).collect();
            let found = self.load_all(&ids).await?;
            return Ok(found
                .into_iter()
                .map(|found| found.map_or(Swapped::Won(Version(1)), |found| Swapped::Lost(Some(found))))
                .collect());
        }
        for _ in 0..TRIES_MAX {
            if let Some(rows) = self.swap_once(batch, of, kind).await? {
                return answers(&rows, of.len(), kind);
            }
        }
        let detail =
            "the MySQL server kept undoing a batch in favour of others; is something else writing its rows?";
        Err(Error::new(ErrorKind::Conflict, detail))
    }

    /// `None` if the server undid it in favour of another. What is given up before its commit was sent is
    /// undone by the server: that much is certain.
    async fn swap_once(&self, batch: &[Swap], of: &[usize], kind: Kind) -> Result<Option<Vec<Row>>> {
        let text = batch::write(batch, of, kind, &mark()?);
        let mut conn = self.connection().await?;
        let until = Instant::now() + self.call_timeout;
        let late = |call| timed_out(call, self.call_timeout);
        let rows = match timeout_at(until, write(&mut conn, text)).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) if is_worth_repeating(&error) => return Ok(None),
            Ok(Err(error)) => return Err(failed(Call::Reads, error)),
            Err(_) => return Err(late(Call::Reads)),
        };
        match timeout_at(until, conn.query_drop("COMMIT")).await {
            Ok(Ok(())) => {
                // There is nothing to clean up: the next one may have the connection as it is.
                conn.reset_connection(false);
                Ok(Some(rows))
            }
            Ok(Err(error)) if is_worth_repeating(&error) => Ok(None),
            Ok(Err(error)) => Err(uncommitted(error)),
            Err(_) => Err(late(Call::Writes)),
        }
    }

    async fn load_all(&self, ids: &[&Id]) -> Result<Vec<Option<Found>>> {
        let mut all: Vec<Option<Found>> = ids.iter().map(|_| None).collect();
        if ids.is_empty() {
            return Ok(all);
        }
        for row in self.rows(statements::LOAD, (batch::ids(ids.iter().copied()),)).await? {
            type Columns = (u64, i64, Vec<u8>, Option<i64>, Vec<u8>);
            let (number, version, state, remaining_us, receipt): Columns =
                mysql_async::from_row_opt(row).map_err(row::damaged)?;
            let state = String::from_utf8(state).map_err(row::damaged)?;
            let place = usize::try_from(number - 1).ok().and_then(|at| all.get_mut(at));
            let place = place.ok_or_else(|| row::damaged("an answer is about no id that was asked for"))?;
            *place = Some(row::found(version, &state, remaining_us, receipt)?);
        }
        Ok(all)
    }
}

/// The write, and a look under its locks, in a transaction that is left open.
async fn write(conn: &mut Conn, text: String) -> mysql_async::Result<Vec<Row>> {
    let written = async {
        let mut results = conn.query_iter(text).await?;
        results.collect::<Row>().await?; // of the beginning: nothing
        results.collect::<Row>().await?; // of the write: nothing
        results.collect().await
    };
    let rows = written.await;
    if rows.is_err() {
        // Should this fail too, the pool resets the connection, which does the same.
        let _ = conn.query_drop("ROLLBACK").await;
    }
    rows
}

fn answers(rows: &[Row], count: usize, kind: Kind) -> Result<Vec<Swapped>> {
    let mut answers: Vec<Swapped> = (0..count).map(|_| Swapped::Lost(None)).collect();
    for row in rows {
        type Columns = (u64, bool, i64, Vec<u8>, Option<i64>, Option<Vec<u8>>);
        let (number, won, version, state, remaining_us, receipt): Columns =
            mysql_async::from_row_opt(row.clone()).map_err(row::damaged)?;
        let place = usize::try_from(number - 1).ok().and_then(|at| answers.get_mut(at));
        let place = place.ok_or_else(|| row::damaged("an answer is about no swap of the batch"))?;
        *place = if won {
            Swapped::Won(row::version(version)?)
        } else {
            let state = String::from_utf8(state).map_err(row::damaged)?;
            Swapped::Lost(Some(row::found(version, &state, remaining_us, receipt.unwrap_or_default())?))
        };
    }
    let lost_to_nothing = answers.iter().any(|answer| matches!(answer, Swapped::Lost(None)));
    if kind == Kind::Create && lost_to_nothing {
        return Err(row::damaged("a claim neither won nor lost").maybe_applied());
    }
    Ok(answers)
}

impl Store for MySqlStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(self.swap_all(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        Box::pin(async move { self.load_all(&ids.iter().collect::<Vec<_>>()).await })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        Box::pin(scan::scan(self, query))
    }

    fn caps(&self) -> Caps {
        Caps {
            name: "mysql",
            durable: true,
            atomic: true,
            shared: true,
            transactions: true,
            batches_in_flight: (self.connections / 2).max(1),
            gathers: false,
        }
    }
}

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").field("connections", &self.connections).finish_non_exhaustive()
    }
}

pub(super) fn pool(url: &str, options: &Options) -> Result<Pool> {
    let opts = Opts::from_url(url).map_err(|error| {
        let detail =
            "this is no address of a MySQL database; it looks like mysql://user:password@host:3306/database";
        Error::new(ErrorKind::Invalid, detail).caused_by(error)
    })?;
    let seconds = options.call_timeout().as_secs().max(1);
    // The lower bound is what the pool keeps for the next one; it makes none before it is asked.
    let connections = options.connections.max(1);
    let constraints = PoolConstraints::new(connections, connections).expect("a number is not above itself");
    let opts = OptsBuilder::from_opts(opts)
        .pool_opts(PoolOpts::default().with_constraints(constraints))
        .setup(vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!("SET SESSION innodb_lock_wait_timeout = {seconds}"),
        ]);
    Ok(Pool::new(opts))
}
