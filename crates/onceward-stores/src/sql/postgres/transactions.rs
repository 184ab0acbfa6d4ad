//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onceward::{Error, Fault, Id, Result, Seen, Swap, Swapped, Transactions, Version};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connect::{CONNECT_MAX, DURABLE, describe, parse, pool};
use super::errors::{CallEffect, failed, timed_out, unconnected};
use super::join::{NO_CLOCK, Parameter, id_values, number_values, open_value, swap_in};
use super::statements;
use super::tx::PostgresTx;
use crate::sql::first_statement::{BeginFuture, Begun, SqlTransactions};
use crate::sql::join::{Cell, Value};
use crate::sql::row::{self, NOT_OPEN, due_us, micros};
use crate::sql::swap_kinds::{record, seen_by};
use crate::sql::transactions::{ended_by_its_work, find_cause};
use crate::sql::{CALL_MAX, FREE_GRACE, Options};

/// The most that an outcome may be kept longer than asked for; and not by more than a 64th.
const KEPT_LONGER_MAX: Duration = Duration::from_mins(1);

/// How strictly transactions are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// The database's default for this connection.
    #[default]
    AsConfigured,
    /// As if one after the other. What the database undoes for that is done again.
    Serializable,
}

/// Begins transactions that a receipt commits with.
#[derive(Clone)]
pub struct PostgresTransactions {
    pool: Pool,
    /// The name of the server in errors.
    server: Arc<str>,
    isolation: Isolation,
}

impl PostgresTransactions {
    /// Over connections of their own to the database that an address names. Business transactions last
    /// longer than the store's statements, so they need more connections.
    pub fn open(url: &str, connections: usize) -> Result<Self> {
        let options = Options { connections, call_timeout: CALL_MAX, ..Options::default() };
        // The client that locked a row may be lost without notice, so idle transactions and lock waits have limits.
        let limit = CALL_MAX.as_millis();
        let set_up = format!(
            "SET idle_in_transaction_session_timeout = {limit}; SET lock_timeout = {limit}; {DURABLE}"
        );
        let (config, tls) = parse(url)?;
        let server = describe(&config).into();
        Ok(Self { server, ..Self::from_pool(pool(config, tls, &options, &set_up)) })
    }

    /// Over a pool that the caller has already. It must lead to the database that the engine's store is in.
    pub fn from_pool(pool: Pool) -> Self {
        Self { pool, server: "PostgreSQL".into(), isolation: Isolation::default() }
    }

    /// Sets how strictly transactions are kept apart.
    pub fn with_isolation(mut self, isolation: Isolation) -> Self {
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

impl Transactions for PostgresTransactions {
    type Tx = PostgresTx;

    /// `BEGIN` and the claim are sent together. The claim falls due a little later than its outcome will, which then
    /// keeps that due time: the row needs no new entry in any index.
    ///
    /// If the work commits by itself, which it must not do, the claim becomes visible. So the claim has a due time of at
    /// least one lease, and never none: it could not be settled.
    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(PostgresTx, Swapped), Fault> {
        let Begun { tx, claimed, .. } = self.begin_and(claim, retention, patience, None).await?;
        Ok((tx, claimed))
    }

    async fn begin_bare(&self, patience: Duration) -> Result<PostgresTx, Fault> {
        let deadline = Instant::now() + patience;
        let tx = self.connect(deadline).await?;
        match timeout_at(deadline, tx.connection().batch_execute(self.opening())).await {
            Ok(Ok(())) => Ok(tx),
            Ok(Err(error)) => Err(fault(error)),
            Err(_) => Err(Fault::Busy),
        }
    }

    /// The completion and `COMMIT` are sent together; a completion that does not win fails the transaction,
    /// and then its `COMMIT` is a rollback.
    async fn commit<'a>(&'a self, tx: PostgresTx, completion: &'a Swap) -> Result<(), Fault> {
        let committed = tokio::time::timeout(CALL_MAX, async {
            if completion.seen == Seen::Absent {
                return commit_in_turn(&tx, completion).await;
            }
            tx.close();
            let keeping = match (tx.claimed(), &completion.new) {
                (Some((ctid, due_in)), Some(new)) if may_stay(*due_in, new.due_in) => Some(ctid),
                _ => None,
            };
            let (statement, values) = completing(completion, keeping.is_some());
            let prepared = tx.connection().prepare_cached(statement).await.map_err(fault)?;
            let values: Vec<Parameter<'_>> = values.into_iter().map(Parameter).collect();
            let mut parameters = parameters(&values);
            parameters.extend(keeping.map(|ctid| ctid as &(dyn ToSql + Sync)));
            commit_with(&tx, tx.connection().query_one(&prepared, &parameters)).await
        });
        let committed = committed.await;
        ended(tx, committed)
    }

    /// A look at the row of the receipt and `COMMIT` are sent together. The look fails if the row is not there, and with
    /// it the transaction.
    async fn commit_written<'a>(&'a self, tx: PostgresTx, id: &'a Id, written: Version) -> Result<(), Fault> {
        let committed = tokio::time::timeout(CALL_MAX, async {
            let Some((ctid, _)) = tx.claimed() else {
                return commit_after_look(&tx, id, written).await;
            };
            tx.close();
            let prepared = tx.connection().prepare_cached(statements::IS_WRITTEN).await.map_err(fault)?;
            let version = i64::try_from(written.0).unwrap_or(i64::MAX);
            let parameters: [&(dyn ToSql + Sync); 2] = [ctid, &version];
            commit_with(&tx, tx.connection().query_one(&prepared, &parameters)).await
        });
        let committed = committed.await;
        ended(tx, committed)
    }

    async fn rollback(&self, tx: PostgresTx) {
        tx.close();
        let rolled_back = tokio::time::timeout(CALL_MAX, tx.connection().batch_execute("ROLLBACK"));
        if let Ok(Ok(())) = rolled_back.await {
            tx.end();
        }
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        find_cause::<tokio_postgres::Error>(error).is_some_and(super::errors::is_worth_repeating)
    }
}

impl SqlTransactions for PostgresTransactions {
    /// `BEGIN`, the claim and the statement are sent together.
    fn begin_with<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> BeginFuture<'a, PostgresTx> {
        Box::pin(self.begin_and(claim, retention, patience, Some((statement, values))))
    }
}

/// The row of a claim that has won, and the first row of the statement behind it.
type ClaimedAnd = (Option<tokio_postgres::Row>, Option<Vec<Cell>>);

impl PostgresTransactions {
    /// A connection on which nothing has begun.
    async fn connect(&self, deadline: Instant) -> Result<PostgresTx, Fault> {
        match timeout_at(deadline, self.pool.get()).await {
            Ok(Ok(connection)) => Ok(PostgresTx::new(connection)),
            Ok(Err(error)) => Err(Fault::Failed(unconnected(&self.server, error))),
            Err(_) => Err(Fault::Busy),
        }
    }

    /// Begins with a claim, and with a statement behind it.
    async fn begin_and(
        &self,
        claim: &Swap,
        retention: Option<Duration>,
        patience: Duration,
        statement: Option<(&str, &[Value<'_>])>,
    ) -> Result<Begun<PostgresTx>, Fault> {
        let deadline = Instant::now() + patience;
        let mut tx = self.connect(deadline).await?;
        let new = record(claim);
        let due_in = new.due_in.max(retention.map(at_the_longest).filter(|_| new.due_in.is_some()));
        // After the timeout the connection is dropped, and the server rolls back.
        let claiming = self.claim(&tx, claim, due_in, statement);
        let (won, first) = timeout_at(deadline, claiming).await.unwrap_or(Err(Fault::Busy))?;
        let claimed = match won {
            Some(row) => {
                tx.has_claimed(row.get(1), due_in);
                Swapped::Won(row::version(row.get(0)).map_err(Fault::Failed)?)
            }
            None => match timeout_at(deadline + CONNECT_MAX, swap_in(&mut tx, claim)).await {
                Ok(swapped) => swapped.map_err(|error| of(self.is_worth_repeating(&error), error))?,
                Err(_) => return Err(Fault::Failed(timed_out(CallEffect::Reads, patience + CONNECT_MAX))),
            },
        };
        Ok(Begun { tx, claimed, first })
    }

    fn opening(&self) -> &'static str {
        match self.isolation {
            Isolation::AsConfigured => "BEGIN",
            Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        }
    }

    /// Begins, writes the claim, and runs the statement.
    async fn claim(
        &self,
        tx: &PostgresTx,
        claim: &Swap,
        due_in: Option<Duration>,
        statement: Option<(&str, &[Value<'_>])>,
    ) -> Result<ClaimedAnd, Fault> {
        let opening = self.opening();
        let new = record(claim);
        // A receipt that falls due with its outcome is listed as the outcome will be, so that its row need not move.
        let open = if due_in == new.due_in { open_value(claim) } else { Value::Int(Some(NOT_OPEN)) };
        let written =
            [Value::Text(new.state.name()), Value::Int(row::due_in_us(due_in)), Value::Bytes(&new.bytes)];
        let (create, values) = match claim.seen {
            Seen::Absent => {
                (statements::CREATE_ONE, [&id_values(&claim.id)[..], &written, &[NO_CLOCK, open]].concat())
            }
            Seen::Version(_) => {
                let seen = Value::Int(Some(seen_by(claim)));
                let numbers = number_values(&claim.id);
                (statements::TAKE_OVER_ONE, [&numbers[..], &written, &[seen, open]].concat())
            }
        };
        let prepared = tx.connection().prepare_cached(create).await.map_err(fault)?;
        let values: Vec<Parameter<'_>> = values.into_iter().map(Parameter).collect();
        let parameters = parameters(&values);
        let (begin, claim) =
            (tx.connection().batch_execute(opening), tx.connection().query_opt(&prepared, &parameters));
        let Some((statement, values)) = statement else {
            let (opened, claimed) = tokio::join!(biased; begin, claim);
            opened.map_err(fault)?;
            return Ok((claimed.map_err(fault)?, None));
        };
        let prepared = tx.connection().prepare_cached(statement).await.map_err(fault)?;
        // Polled in this order, they are sent in this order.
        let (opened, claimed, first) =
            tokio::join!(biased; begin, claim, super::join::fetch(&***tx.connection(), &prepared, values));
        opened.map_err(fault)?;
        let claimed = claimed.map_err(fault)?;
        let first = first.map_err(|error| of(self.is_worth_repeating(&error), error))?;
        Ok((claimed, first))
    }
}

/// The statement that completes the claim, and its parameters.
fn completing(completion: &Swap, keeps_its_due: bool) -> (&'static str, Vec<Value<'_>>) {
    let seen = Value::Int(Some(seen_by(completion)));
    let numbers = number_values(&completion.id);
    let Some(new) = &completion.new else {
        let grace = Value::Int(Some(micros(FREE_GRACE)));
        return (statements::COMPLETE_BY_REMOVAL, [&numbers[..], &[seen, grace]].concat());
    };
    let written = [
        Value::Text(new.state.name()),
        Value::Int(due_us(new)),
        Value::Bytes(&new.bytes),
        seen,
        open_value(completion),
    ];
    let statement = if keeps_its_due { statements::COMPLETE_ONE_KEEPING } else { statements::COMPLETE_ONE };
    (statement, [&numbers[..], &written].concat())
}

/// Sends a statement that fails if nothing is to be committed, and `COMMIT` behind it.
async fn commit_with(
    tx: &PostgresTx,
    last: impl Future<Output = Result<tokio_postgres::Row, tokio_postgres::Error>>,
) -> Result<(), Fault> {
    // Polled in this order, they are sent in this order.
    let (last, ended) = tokio::join!(biased; last, tx.connection().batch_execute("COMMIT"));
    match (last, ended) {
        (Ok(_), Ok(())) => Ok(()),
        (Ok(_), Err(error)) => Err(commit_fault(error)),
        // The error of a completion that loses.
        (Err(error), _) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
            Err(Fault::Failed(ended_by_its_work().caused_by(error)))
        }
        // The server refused it, so what followed was a rollback.
        (Err(error), _) if error.as_db_error().is_some() => Err(commit_fault(error)),
        (Err(error), _) => Err(Fault::Failed(failed(CallEffect::Writes, error))),
    }
}

/// What became of a commit; the connection of one that is over serves others.
fn ended(tx: PostgresTx, committed: Result<Result<(), Fault>, Elapsed>) -> Result<(), Fault> {
    match committed {
        Ok(Ok(())) => {
            tx.end();
            Ok(())
        }
        Ok(Err(fault)) => Err(fault),
        Err(_) => Err(Fault::Failed(timed_out(CallEffect::Writes, CALL_MAX))),
    }
}

/// Commits what began with a receipt over a row that was free.
async fn commit_after_look(tx: &PostgresTx, id: &Id, written: Version) -> Result<(), Fault> {
    let look = Swap { id: id.clone(), seen: Seen::Absent, new: None };
    let found = swap_in(&mut tx.clone(), &look).await;
    tx.close();
    match found {
        Ok(Swapped::Lost(Some(found))) if found.version == written => {
            tx.connection().batch_execute("COMMIT").await.map_err(commit_fault)
        }
        Ok(Swapped::Won(_) | Swapped::Lost(_)) => Err(Fault::Failed(ended_by_its_work())),
        Ok(Swapped::Failed(error)) | Err(error) => {
            let undone = find_cause(&error).is_some_and(super::errors::is_worth_repeating);
            Err(of(undone, error))
        }
    }
}

/// Writes and then commits, for a completion that has seen nothing: there is no claim that it completes.
async fn commit_in_turn(tx: &PostgresTx, completion: &Swap) -> Result<(), Fault> {
    let swapped = swap_in(&mut tx.clone(), completion).await;
    tx.close();
    match swapped {
        Ok(Swapped::Won(_)) => tx.connection().batch_execute("COMMIT").await.map_err(commit_fault),
        Ok(Swapped::Lost(_)) => Err(Fault::Failed(ended_by_its_work())),
        Ok(Swapped::Failed(error)) | Err(error) => {
            let undone = find_cause(&error).is_some_and(super::errors::is_worth_repeating);
            Err(of(undone, error))
        }
    }
}

/// How long an outcome may be kept at the longest.
fn at_the_longest(retention: Duration) -> Duration {
    retention.saturating_add((retention / 64).min(KEPT_LONGER_MAX))
}

/// Whether an outcome with this retention may have the due time of its claim.
fn may_stay(claim_due_in: Option<Duration>, retention: Option<Duration>) -> bool {
    let both = claim_due_in.zip(retention);
    both.is_some_and(|(due_in, retention)| retention <= due_in && due_in <= at_the_longest(retention))
}

fn parameters<'a>(values: &'a [Parameter<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Before its commit a transaction that failed certainly did nothing.
fn fault(error: tokio_postgres::Error) -> Fault {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        return Fault::Busy;
    }
    let undone = super::errors::is_worth_repeating(&error);
    of(undone, failed(CallEffect::Reads, error))
}

fn commit_fault(error: tokio_postgres::Error) -> Fault {
    let undone = super::errors::is_worth_repeating(&error);
    of(undone, failed(CallEffect::Writes, error))
}

fn of(undone: bool, error: Error) -> Fault {
    if undone { Fault::Undone(error) } else { Fault::Failed(error) }
}
