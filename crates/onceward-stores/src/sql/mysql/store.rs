//! Swaps and loads, and the connections they go over.

use std::fmt::Write;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Pool, PoolConstraints, PoolOpts, Row, Value};
use onceward::{
    Applied, Caps, Error, ErrorKind, Found, Fut, Id, Page, Result, Scan, Seen, Store, Swap, Swapped, Version,
};

use super::fault::{Call, failed, is_worth_repeating, timed_out};
use super::join::mark;
use super::{scan, schema, statements};
use crate::sql::kinds::{Kinds, seen_by};
use crate::sql::row::{self, due_us, micros};
use crate::sql::schema::Migrated;
use crate::sql::{CALL_MAX, FREE_GRACE, Options, TRIES_MAX};

/// Bytes of receipts in one statement. In hexadecimal, this stays below the server's usual limit of 16 MB.
const STATEMENT_BYTES_MAX: usize = 3 << 20;

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
        let prepared = tokio::time::timeout(CALL_MAX, schema::prepare(&mut conn, options.migrations)).await;
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
        match tokio::time::timeout(self.call_timeout, self.pool.get_conn()).await {
            Ok(conn) => conn.map_err(|error| failed(Call::Reads, error)),
            Err(_) => Err(timed_out(Call::Reads, self.call_timeout)),
        }
    }

    /// One statement that only reads.
    pub(super) async fn rows(&self, statement: &str, values: impl Into<Params> + Send) -> Result<Vec<Row>> {
        let mut conn = self.connection().await?;
        match tokio::time::timeout(self.call_timeout, conn.exec(statement, values.into())).await {
            Ok(rows) => rows.map_err(|error| failed(Call::Reads, error)),
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
        let asked = asked(batch, of);
        let mut tries = 0;
        loop {
            let mut conn = self.connection().await?;
            let swapping =
                tokio::time::timeout(self.call_timeout, transaction(&mut conn, &asked, kind)).await;
            return match swapping {
                Ok(Ok(rows)) => answers(&rows, of.len(), kind),
                Ok(Err((_, error))) if is_worth_repeating(&error) && tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                Ok(Err((call, error))) => Err(failed(call, error)),
                Err(_) => Err(timed_out(Call::Writes, self.call_timeout)),
            };
        }
    }

    async fn load_all(&self, ids: &[&Id]) -> Result<Vec<Option<Found>>> {
        let mut all: Vec<Option<Found>> = ids.iter().map(|_| None).collect();
        if ids.is_empty() {
            return Ok(all);
        }
        let mut asked = String::from("[");
        for id in ids {
            push_id(&mut asked, id);
            asked.push_str("],");
        }
        asked.pop();
        asked.push(']');
        for row in self.rows(statements::LOAD, (asked,)).await? {
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

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Replace,
    Free,
    Check,
}

/// The write, a look under its locks, and the commit. An error before the commit is sent changed nothing.
async fn transaction(
    conn: &mut Conn,
    asked: &str,
    kind: Kind,
) -> std::result::Result<Vec<Row>, (Call, mysql_async::Error)> {
    let mark = mark().map_err(|error| (Call::Reads, mysql_async::Error::Other(Box::new(error))))?;
    let (mark, asked) = (Value::from(&mark[..]), Value::from(asked));
    let before = |error| (Call::Reads, error);
    conn.query_drop("START TRANSACTION").await.map_err(before)?;
    let (statement, values) = match kind {
        Kind::Create => (statements::CREATE, vec![mark.clone(), asked.clone()]),
        Kind::Replace => (statements::REPLACE, vec![asked.clone(), mark.clone()]),
        _ => (statements::FREE, vec![asked.clone(), micros(FREE_GRACE).into(), mark.clone()]),
    };
    let written = async {
        conn.exec_drop(statement, Params::Positional(values)).await?;
        conn.exec(statements::LOOK, Params::Positional(vec![mark.clone(), mark.clone(), asked, mark])).await
    };
    let rows = match written.await {
        Ok(rows) => rows,
        Err(error) => {
            // Should this fail too, the pool resets the connection, which does the same.
            let _ = conn.query_drop("ROLLBACK").await;
            return Err(before(error));
        }
    };
    conn.query_drop("COMMIT").await.map_err(|error| (Call::Writes, error))?;
    Ok(rows)
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

/// The places of a kind, in pieces that fit into a statement.
fn pieces<'a>(batch: &'a [Swap], of: &'a [usize]) -> Vec<&'a [usize]> {
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, place) in of.iter().enumerate() {
        let len = batch[*place].new.as_ref().map_or(0, |new| new.bytes.len());
        if at > start && bytes + len > STATEMENT_BYTES_MAX {
            pieces.push(&of[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += len;
    }
    if start < of.len() {
        pieces.push(&of[start..]);
    }
    pieces
}

/// A batch as the statements want it.
fn asked(batch: &[Swap], of: &[usize]) -> String {
    let mut asked = String::from("[");
    for place in of {
        let swap = &batch[*place];
        push_id(&mut asked, &swap.id);
        let (state, due, bytes) = match &swap.new {
            Some(new) => (new.state.name(), due_us(new), &new.bytes[..]),
            None => ("free", None, &[][..]),
        };
        let due = due.map_or_else(|| "null".to_owned(), |due| due.to_string());
        let seen = if let Seen::Version(_) = swap.seen { seen_by(swap) } else { 0 };
        write!(asked, ",\"{state}\",{due},\"").expect("a String takes anything");
        push_hex(&mut asked, bytes);
        write!(asked, "\",{seen}],").expect("a String takes anything");
    }
    asked.pop();
    asked.push(']');
    asked
}

fn push_id(asked: &mut String, id: &Id) {
    asked.push_str("[\"");
    push_hex(asked, id.scope().as_bytes());
    asked.push_str("\",\"");
    push_hex(asked, id.operation().as_bytes());
    asked.push_str("\",\"");
    push_hex(asked, id.key().as_bytes());
    asked.push('"');
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
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
    let constraints = PoolConstraints::new(0, options.connections.max(1)).expect("0 is below any number");
    let opts = OptsBuilder::from_opts(opts)
        .pool_opts(PoolOpts::default().with_constraints(constraints))
        .setup(vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!("SET SESSION innodb_lock_wait_timeout = {seconds}"),
        ]);
    Ok(Pool::new(opts))
}
