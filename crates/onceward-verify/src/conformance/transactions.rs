//! The conformance suite for transaction drivers, which commit a receipt in a transaction of the caller.
//!
//! A driver brings a [`Harness`]: a store, transactions on the same database, and one table of counters that
//! stands for the business data. The checks use it as the engine does, and then through the engine.

mod bare;
mod bounds;
mod claims;
mod commits;
mod engine;
mod expired;
mod failing_commits;
mod fixture;
mod joined;
mod leases;
mod queue;
mod races;
mod written;

use std::future::Future;
use std::sync::Arc;

use onceward::{Stopped, Store, Transactions};

use super::{Check, FailedCheck, Wrong, one, panic_on_failures};
use fixture::TransactionFixture;

/// A fresh database with a store in it, transactions on it, and a table of counters.
///
/// ```
/// # use onceward::{Error, ErrorKind, Result, Stopped, Store, Transactions};
/// # use onceward_verify::conformance::{self, Harness, Tx}; use std::{future::Future, sync::Arc};
/// # trait Database: Transactions<Tx: Sync> + 'static {
/// #     fn store(&self) -> Arc<dyn Store>;
/// #     fn execute(tx: &mut Self::Tx, sql: &str, key: &str) -> impl Future<Output = Result<()>> + Send;
/// #     fn query(&self, sql: &str, key: &str) -> impl Future<Output = Result<u64>> + Send;
/// # }
/// struct MyHarness<D>(D);
///
/// impl<D: Database> Harness for MyHarness<D> {
///     type T = D;
///
///     fn store(&self) -> Arc<dyn Store> {
///         self.0.store()
///     }
///
///     fn transactions(&self) -> &D {
///         &self.0
///     }
///
///     async fn write(&self, tx: &mut Tx<Self>, key: &str) -> Result<(), Stopped> {
///         const ADD: &str = "INSERT INTO counters VALUES ($1, 1)
///             ON CONFLICT (name) DO UPDATE SET count = counters.count + 1";
///         D::execute(tx, ADD, key).await?;
///         Ok(())
///     }
///
///     async fn count(&self, key: &str) -> Result<u64, Stopped> {
///         Ok(self.0.query("SELECT coalesce(sum(count), 0) FROM counters WHERE name = $1", key).await?)
///     }
/// }
///
/// # async fn open<D: Database>() -> Result<D> { Err(Error::new(ErrorKind::Unavailable, "no database")) }
/// // A whole test: a fresh database for each check, in one call.
/// async fn conforms<D: Database>() {
///     conformance::transactions(async || Ok(MyHarness(open::<D>().await?))).await;
/// }
/// ```
pub trait Harness: Send + Sync + 'static {
    /// The transactions that are checked.
    type T: Transactions<Tx: Sync> + 'static;

    /// The store in the same database; each time a handle on the same one.
    fn store(&self) -> Arc<dyn Store>;

    /// The transactions.
    fn transactions(&self) -> &Self::T;

    /// Adds one to the counter of `key`, through the transaction. There is one row for each key, so that two
    /// transactions that write the same keys in another order block each other.
    fn write(&self, tx: &mut Tx<Self>, key: &str) -> impl Future<Output = Result<(), Stopped>> + Send;

    /// What the counter of `key` says, as anybody else sees it: committed writes only.
    fn count(&self, key: &str) -> impl Future<Output = Result<u64, Stopped>> + Send;
}

/// A handle on a transaction of a harness.
pub type Tx<B> = <<B as Harness>::T as Transactions>::Tx;

macro_rules! table {
    ($($topic:ident: $($check:ident)+;)+) => {
        vec![$($(Check {
            name: concat!("transactions::", stringify!($topic), "::", stringify!($check)),
            run: |fixture| Box::pin($topic::$check::<B>(fixture)),
        },)+)+]
    };
}

/// Every check there is.
fn checks<B: Harness>() -> Vec<Check<TransactionFixture<B>>> {
    table! {
        claims:
            the_store_says_that_it_joins
            a_claim_is_seen_only_after_the_commit
            a_rollback_leaves_nothing
            a_drop_leaves_nothing
            a_dropped_begin_leaves_nothing
            a_claim_may_replace_a_version
            a_losing_claim_learns_what_is_there
            the_second_waits_and_loses
            the_second_waits_and_wins_after_a_rollback
            the_second_is_busy_when_its_patience_ends
            waiting_for_a_connection_is_busy_too
            a_swap_of_the_store_waits_as_well;
        commits:
            a_completion_that_loses_commits_nothing
            a_dropped_commit_is_whole_or_nothing
            a_completion_is_due_when_it_says
            a_completion_may_remove
            versions_grow_across_transactions
            a_handle_that_is_dropped_undoes_nothing
            a_handle_is_of_no_use_after_the_commit;
        joined:
            an_empty_batch_is_answered
            each_swap_has_its_own_answer
            a_rollback_undoes_every_swap
            nothing_for_nothing_is_a_look
            its_own_writes_are_seen_inside
            a_large_batch_is_answered_in_order
            what_was_committed_is_found_by_scans;
        bare:
            it_leaves_nothing_unless_it_commits
            it_completes_a_claim_that_is_there
            it_commits_nothing_over_a_claim_that_moved
            it_races_with_a_takeover
            waiting_for_a_connection_is_busy;
        bounds:
            ids_of_every_kind
            records_of_every_size;
        races:
            one_claim_of_each_id_commits
            no_update_is_lost;
        engine:
            duplicates_run_once
            outcome_and_write_commit_together
            stopped_work_leaves_nothing
            dropped_work_leaves_nothing
            a_failure_is_an_outcome
            a_lapsed_claim_is_taken_over
            what_waits_is_begun
            a_deadlock_is_repeated
            run_and_transact_are_one;
        leases:
            a_run_commits_its_receipt_with_its_write
            a_former_owner_commits_nothing
            a_commit_races_with_a_takeover
            a_commit_without_an_answer_is_looked_up
            a_commit_that_did_not_happen_is_repeated;
        written:
            it_is_seen_only_after_the_commit
            it_is_due_when_it_says
            it_may_be_where_another_was
            the_second_waits_and_loses
            a_receipt_that_is_gone_commits_nothing
            a_dropped_commit_is_whole_or_nothing
            duplicates_run_once
            outcome_and_write_commit_together
            stopped_work_leaves_nothing
            what_is_there_is_claimed
            long_work_does_not_shorten_the_retention;
        queue:
            enqueued_and_rolled_back_is_not_there
            enqueued_and_committed_is_there
            claimed_and_completed_inside_is_all_or_nothing;
        expired:
            a_transaction_finds_no_step_of_a_previous_life
            a_claim_inside_finds_no_step_of_a_previous_life
            an_enqueued_intent_has_no_step_of_a_previous_life;
        failing_commits:
            an_undone_transaction_is_repeated
            a_commit_without_an_answer_is_looked_up
            a_lost_commit_is_repeated
            a_transaction_inside_another_is_refused;
    }
}

/// Runs every check of transactions and panics with a list of those that failed. This is what a new driver
/// must pass: its definition of done.
///
/// `make` gives a harness on a fresh and empty database each time; for a server that is shared, a fresh schema
/// or namespace. Its pool must allow at least 8 connections. Needs a tokio runtime of either
/// flavour.
pub async fn transactions<B, M, F>(make: M)
where
    B: Harness,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<B>>,
{
    let failures = transaction_failures(make).await;
    panic_on_failures("these transactions", &failures, checks::<B>().len());
}

/// Runs every check of transactions and returns those that failed. For tests that expect some to.
pub async fn transaction_failures<B, M, F>(make: M) -> Vec<FailedCheck>
where
    B: Harness,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<B>>,
{
    let mut failures = Vec::new();
    for check in checks::<B>() {
        failures.extend(failure_of(&check, &make).await);
    }
    failures
}

/// Runs the checks of transactions until one fails. For broken drivers, where one is enough.
pub async fn first_transaction_failure<B, M, F>(make: M) -> Option<FailedCheck>
where
    B: Harness,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<B>>,
{
    for check in checks::<B>() {
        if let Some(failure) = failure_of(&check, &make).await {
            return Some(failure);
        }
    }
    None
}

async fn failure_of<B, M, F>(check: &Check<TransactionFixture<B>>, make: &M) -> Option<FailedCheck>
where
    B: Harness,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<B>>,
{
    let checked = match make().await {
        Ok(harness) => one(check, TransactionFixture::new(harness)).await,
        Err(error) => Err(Wrong(format!("no transactions to check: {error:?}"))),
    };
    checked.err().map(|Wrong(wrong)| FailedCheck { check: check.name, wrong })
}
