//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Client, Object, Pool};
use onceward::{Error, ErrorKind, Fault, Fut, Join, Result, Swap, Swapped};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connect::{CONNECT_MAX, DURABLE, parse, pool};
use super::fault::{Call, failed, timed_out, unconnected};
use super::join::{NO_CLOCK, Parameter, id_values, number_values, swap_in};
use super::places::Place;
use super::statements;
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};
use crate::sql::kinds::{record, seen_by};
use crate::sql::row::{self, due_us};
use crate::sql::{CALL_MAX, Options};

/// The most that an outcome may be kept longer than asked for; and not by more than a 64th.
const KEPT_LONGER_MAX: Duration = Duration::from_mins(1);

/// How strictly transactions are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The database's default for this connection.
    #[default]
    AsConfigured,
    /// As if one after the other. What the database undoes for that is done anew.
    Serializable,
}

/// Begins transactions in which receipts ride along.
#[derive(Clone)]
pub struct PostgresTransactions {
    pool: Pool,
    isolation: Isolation,
}

impl PostgresTransactions {
    /// Over connections of their own to the database that an address names. Business transactions last
    /// longer than the store's statements, so they need more connections.
    pub fn open(url: &str, connections: usize) -> Result<Self> {
        let options = Options { connections, call_timeout: CALL_MAX, ..Options::default() };
        // Whoever holds a row may be gone without a word: nobody idles for ever, or waits for it.
        let limit = CALL_MAX.as_millis();
        let set_up = format!(
            "SET idle_in_transaction_session_timeout = {limit}; SET lock_timeout = {limit}; {DURABLE}"
        );
        Ok(Self::from_pool(pool(parse(url)?, NoTls, &options, &set_up)))
    }

    /// Over a pool that the caller has already. It must lead to the database that the engine's store is in.
    pub fn from_pool(pool: Pool) -> Self {
        Self { pool, isolation: Isolation::default() }
    }

    /// Sets how strictly transactions are kept apart.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The pool, for everything else.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl std::fmt::Debug for PostgresTransactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTransactions").field("isolation", &self.isolation).finish_non_exhaustive()
    }
}

/// A transaction under way; use it like the client that it is. When the last handle on it is dropped before
/// the commit, the connection is closed, which undoes it.
#[derive(Clone)]
pub struct PostgresTx(Arc<Line>);

/// A connection that goes back to its pool only if the end of the transaction is known and nobody can use
/// it any more.
struct Line {
    connection: Option<Object>,
    /// Where the row of the claim is, if the transaction began with one that won, and in how long it falls due.
    claimed: Option<(Place, Option<Duration>)>,
}

impl PostgresTx {
    fn connection(&self) -> &Object {
        self.0.connection.as_ref().expect("it is taken only at the end")
    }

    /// Its end is known: the connection may serve others.
    fn end(self) {
        if let Ok(mut line) = Arc::try_unwrap(self.0) {
            drop(line.connection.take());
        }
    }
}

impl Deref for PostgresTx {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.connection()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}

impl std::fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}

impl SqlTransaction for PostgresTx {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        let connection = self.connection();
        let prepared =
            connection.prepare_cached(statement).await.map_err(|error| failed(Call::Reads, error))?;
        super::join::fetch(&***connection, &prepared, values).await
    }
}

impl Join for PostgresTx {
    fn swap<'a>(&'a mut self, swap: &'a Swap) -> Fut<'a, Swapped> {
        Box::pin(swap_in(self, swap))
    }
}

impl onceward::Transactions for PostgresTransactions {
    type Tx = PostgresTx;

    /// `BEGIN` and the claim travel together. The claim falls due a little later than its outcome will, which then
    /// keeps that due time: the row needs no new entry in any index.
    ///
    /// Work that commits by itself, against all advice, lets the claim be seen. So it lasts for a lease at least, and
    /// never for ever: nobody could settle it.
    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        kept_for: Option<Duration>,
        patience: Duration,
    ) -> Result<(PostgresTx, Swapped), Fault> {
        let connection = self.pool.get().await.map_err(|error| Fault::Failed(unconnected(error)))?;
        let mut tx = PostgresTx(Arc::new(Line { connection: Some(connection), claimed: None }));
        let isolation = match self.isolation {
            Isolation::AsConfigured => "",
            Isolation::Serializable => " ISOLATION LEVEL SERIALIZABLE",
        };
        let opening = format!("BEGIN{isolation}");
        // Who does not come in time is given up with its connection: the server undoes it.
        let limit = patience + CONNECT_MAX;
        let new = record(claim);
        let due_in = new.due_in.max(kept_for.map(at_the_longest).filter(|_| new.due_in.is_some()));
        let answer = tokio::time::timeout(patience, async {
            let prepared = tx.connection().prepare_cached(statements::CREATE_ONE).await.map_err(fault)?;
            let [high, middle, low, scope, operation, key] = id_values(&claim.id);
            let values = [
                high,
                middle,
                low,
                scope,
                operation,
                key,
                Value::Text(new.state.name()),
                Value::Int(row::due_in_us(due_in)),
                Value::Bytes(&new.bytes),
                NO_CLOCK,
            ]
            .map(Parameter);
            let parameters = parameters(&values);
            let (opened, claimed) = tokio::join!(
                tx.connection().batch_execute(&opening),
                tx.connection().query_opt(&prepared, &parameters)
            );
            opened.map_err(fault)?;
            claimed.map_err(fault)
        });
        let won = answer.await.unwrap_or(Err(Fault::Busy))?;
        let swapped = match won {
            Some(row) => {
                let line = Arc::get_mut(&mut tx.0).expect("it is not given out yet");
                line.claimed = Some((row.get(1), due_in));
                Swapped::Won(row::version(row.get(0)).map_err(Fault::Failed)?)
            }
            None => match tokio::time::timeout(limit, swap_in(&mut tx, claim)).await {
                Ok(swapped) => swapped.map_err(|error| of(self.is_worth_repeating(&error), error))?,
                Err(_) => return Err(Fault::Failed(timed_out(Call::Reads, limit))),
            },
        };
        Ok((tx, swapped))
    }

    /// The completion and `COMMIT` travel together; a completion that does not win fails the transaction,
    /// and then its `COMMIT` is a rollback.
    async fn commit<'a>(&'a self, tx: PostgresTx, completion: &'a Swap) -> Result<(), Fault> {
        let committed = tokio::time::timeout(CALL_MAX, async {
            let new = record(completion);
            let keeping = tx.0.claimed.as_ref().filter(|(_, due_in)| may_stay(*due_in, new.due_in));
            let statement = match keeping {
                Some(_) => statements::COMPLETE_ONE_KEEPING,
                None => statements::COMPLETE_ONE,
            };
            let prepared = tx.connection().prepare_cached(statement).await.map_err(fault)?;
            let [high, middle, low] = number_values(&completion.id);
            let values = [
                high,
                middle,
                low,
                Value::Text(new.state.name()),
                Value::Int(due_us(new)),
                Value::Bytes(&new.bytes),
                Value::Int(Some(seen_by(completion))),
            ]
            .map(Parameter);
            let mut parameters = parameters(&values);
            parameters.extend(keeping.map(|(place, _)| place as &(dyn ToSql + Sync)));
            let (completed, ended) = tokio::join!(
                tx.connection().query_one(&prepared, &parameters),
                tx.connection().batch_execute("COMMIT")
            );
            match (completed, ended) {
                (Ok(_), Ok(())) => Ok(()),
                (Ok(_), Err(error)) => Err(commit_fault(error)),
                // What such a completion fails with where it loses.
                (Err(error), _) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                    Err(Fault::Failed(gone().caused_by(error)))
                }
                // The server said no to the completion, so what followed was a rollback.
                (Err(error), _) if error.as_db_error().is_some() => Err(commit_fault(error)),
                (Err(error), _) => Err(Fault::Failed(failed(Call::Writes, error))),
            }
        });
        match committed.await {
            Ok(Ok(())) => {
                tx.end();
                Ok(())
            }
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::Failed(timed_out(Call::Writes, CALL_MAX))),
        }
    }

    async fn rollback(&self, tx: PostgresTx) {
        let rolled_back = tokio::time::timeout(CALL_MAX, tx.connection().batch_execute("ROLLBACK"));
        if let Ok(Ok(())) = rolled_back.await {
            tx.end();
        }
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
                return super::fault::is_worth_repeating(error);
            }
            next = error.source();
        }
        false
    }
}

/// How long an outcome may be kept at the longest.
fn at_the_longest(kept_for: Duration) -> Duration {
    kept_for.saturating_add((kept_for / 64).min(KEPT_LONGER_MAX))
}

/// Whether an outcome that is to be kept for so long may have the due time of its claim.
fn may_stay(claim_due_in: Option<Duration>, kept_for: Option<Duration>) -> bool {
    let both = claim_due_in.zip(kept_for);
    both.is_some_and(|(due_in, kept_for)| kept_for <= due_in && due_in <= at_the_longest(kept_for))
}

fn gone() -> Error {
    Error::new(ErrorKind::Conflict, "the work has ended the transaction that its receipt was to ride in")
}

fn parameters<'a>(values: &'a [Parameter<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Before its commit a transaction that failed certainly did nothing.
fn fault(error: tokio_postgres::Error) -> Fault {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        return Fault::Busy;
    }
    let undone = super::fault::is_worth_repeating(&error);
    of(undone, failed(Call::Reads, error))
}

fn commit_fault(error: tokio_postgres::Error) -> Fault {
    let undone = super::fault::is_worth_repeating(&error);
    of(undone, failed(Call::Writes, error))
}

fn of(undone: bool, error: Error) -> Fault {
    if undone { Fault::Undone(error) } else { Fault::Failed(error) }
}
