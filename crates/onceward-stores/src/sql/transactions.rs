//! Transactions for [`Onceward::transact`](onceward::Onceward::transact), from a pool, for any driver that runs one
//! statement after the other. Such a driver implements [`TransactionDriver`]. (The driver for PostgreSQL sends several
//! statements in one round trip, and has its own transactions.)

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use onceward::{
    Applied, Error, ErrorKind, Fault, Id, Join, Result, Seen, Swap, Swapped, Transactions, Version,
};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::CALL_MAX;
use super::first_statement::SqlTransactions;
use super::join::SqlTransaction;

/// How a driver opens and ends transactions. For the drivers of this crate.
#[doc(hidden)]
pub trait TransactionDriver: Send + Sync + 'static {
    /// A handle on a transaction under way.
    type Tx: Join + Clone + 'static;

    /// By how much the server may exceed the limit on waiting for a row.
    const LATE_MAX: Duration;

    /// Opens a transaction that may write, on a connection of its own. Waits no longer than `deadline` for either;
    /// then it is busy.
    fn open(&self, deadline: Instant) -> impl Future<Output = Result<Self::Tx, Fault>> + Send;

    /// Whether the transaction is still the one that was opened, and no part of it was left open.
    fn is_whole(&self, tx: &Self::Tx) -> impl Future<Output = Result<bool>> + Send;

    /// Commits. An error says whether it may have happened.
    fn commit(&self, tx: &Self::Tx) -> impl Future<Output = Result<()>> + Send;

    /// Undoes everything. Where that fails, the connection does not go back to the pool as it is.
    fn roll_back(&self, tx: &Self::Tx) -> impl Future<Output = ()> + Send;

    /// What an error inside a transaction means, if it came from this driver.
    fn failure_class(&self, error: &(dyn StdError + 'static)) -> Option<FailureClass>;
}

/// The meaning of an error for its transaction.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Another transaction holds the lock.
    Busy,
    /// It was rolled back in favour of another transaction.
    Undone,
    /// Waiting or retrying would not help.
    Failed,
}

/// Begins transactions that a receipt commits with, on a pool.
#[derive(Clone, Debug)]
pub struct PooledTransactions<D>(pub(super) D);

impl<D: TransactionDriver> PooledTransactions<D> {
    /// The fault for an error inside a transaction or of its commit.
    fn fault(&self, error: Error) -> Fault {
        if error.applied() == Applied::Maybe {
            return Fault::Failed(error);
        }
        match self.class_of(&error) {
            FailureClass::Busy => Fault::Busy,
            FailureClass::Undone => Fault::Undone(error),
            FailureClass::Failed => Fault::Failed(error),
        }
    }

    /// Decided by the first error in the chain that comes from the driver.
    fn class_of(&self, error: &(dyn StdError + 'static)) -> FailureClass {
        chain(error).find_map(|error| self.0.failure_class(error)).unwrap_or(FailureClass::Failed)
    }
}

impl<D: TransactionDriver> Transactions for PooledTransactions<D> {
    type Tx = D::Tx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        _: Option<Duration>,
        patience: Duration,
    ) -> Result<(D::Tx, Swapped), Fault> {
        let deadline = Instant::now() + patience;
        let mut tx = self.0.open(deadline).await?;
        match timeout_at(deadline + D::LATE_MAX, swap_one(&mut tx, claim)).await {
            Ok(Ok(swapped)) => Ok((tx, swapped)),
            Ok(Err(error)) => {
                self.0.roll_back(&tx).await;
                Err(self.fault(error))
            }
            // The connection is dropped, which rolls it back.
            Err(_) => Err(Fault::Busy),
        }
    }

    async fn begin_bare(&self, patience: Duration) -> Result<D::Tx, Fault> {
        self.0.open(Instant::now() + patience).await
    }

    async fn commit<'a>(&'a self, mut tx: D::Tx, completion: &'a Swap) -> Result<(), Fault> {
        let completed = timeout(CALL_MAX, async {
            if !self.0.is_whole(&tx).await? {
                return Ok(false);
            }
            match swap_one(&mut tx, completion).await? {
                Swapped::Won(_) => Ok(true),
                Swapped::Lost(_) => Ok(false),
                Swapped::Failed(error) => Err(error),
            }
        });
        let completed = completed.await;
        self.end(tx, completed).await
    }

    async fn commit_written<'a>(&'a self, mut tx: D::Tx, id: &'a Id, written: Version) -> Result<(), Fault> {
        // From absent to absent is a read.
        let look = Swap { id: id.clone(), seen: Seen::Absent, new: None };
        let there = timeout(CALL_MAX, async {
            if !self.0.is_whole(&tx).await? {
                return Ok(false);
            }
            match swap_one(&mut tx, &look).await? {
                Swapped::Lost(Some(found)) => Ok(found.version == written),
                Swapped::Won(_) | Swapped::Lost(None) => Ok(false),
                Swapped::Failed(error) => Err(error),
            }
        });
        let there = there.await;
        self.end(tx, there).await
    }

    async fn rollback(&self, tx: D::Tx) {
        // If this hangs, the connection is dropped, which rolls back too.
        let _ = timeout(CALL_MAX, self.0.roll_back(&tx)).await;
    }

    fn is_worth_repeating(&self, error: &(dyn StdError + 'static)) -> bool {
        self.class_of(error) == FailureClass::Undone
    }
}

impl<D: TransactionDriver<Tx: SqlTransaction + Sync>> SqlTransactions for PooledTransactions<D> {}

impl<D: TransactionDriver> PooledTransactions<D> {
    /// Commits a transaction whose receipt is as it is to be, and undoes another one.
    async fn end(&self, tx: D::Tx, is_right: Result<Result<bool>, Elapsed>) -> Result<(), Fault> {
        let fault = match is_right {
            Ok(Ok(true)) => None,
            Ok(Ok(false)) => Some(Fault::Failed(ended_by_its_work())),
            Ok(Err(error)) => Some(self.fault(error)),
            // The connection is dropped, which rolls it back.
            Err(_) => return Err(Fault::Failed(timed_out())),
        };
        if let Some(fault) = fault {
            self.0.roll_back(&tx).await;
            return Err(fault);
        }
        match timeout(CALL_MAX, self.0.commit(&tx)).await {
            Ok(committed) => committed.map_err(|error| self.fault(error)),
            Err(_) => Err(Fault::Failed(timed_out().maybe_applied())),
        }
    }
}

async fn swap_one<J: Join>(tx: &mut J, swap: &Swap) -> Result<Swapped> {
    let mut swapped = tx.swap(std::slice::from_ref(swap)).await?;
    Ok(swapped.pop().expect("one answer for each swap"))
}

/// The error if the completion does not find the claim that the transaction began with.
pub(super) fn ended_by_its_work() -> Error {
    let detail = "the work has ended the transaction that its receipt belongs to, or left a part of it open";
    Error::new(ErrorKind::Conflict, detail)
}

/// The error for using a transaction after its end.
pub(super) fn over() -> Error {
    let detail = "this transaction is over; a handle on it must not outlive the work that it was given to";
    Error::new(ErrorKind::Conflict, detail)
}

fn timed_out() -> Error {
    Error::new(ErrorKind::Unavailable, format!("the database did not answer within {CALL_MAX:?}"))
}

/// An error and its sources.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The first error of this type in the chain.
pub(super) fn find_cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}
