//! The `Join` and `Transactions` traits: a receipt that is written in the caller's own transaction. The receipt
//! and the business writes then commit together or not at all, and the row lock is the lease.
//!
//! Like the `Store` trait, they contain no rule of the protocol: they swap records, inside a transaction.

use std::future::Future;
use std::time::Duration;

use crate::error::Error;
use crate::id::Id;
use crate::store::{StoreFuture, Swap, Swapped, Version};

/// An open transaction, in the database that the engine's store is in.
pub trait Join: Send {
    /// As [`Store::swap`](crate::Store::swap), but inside the transaction: others see what was written
    /// when the transaction commits, and never if it does not. While another transaction has written
    /// one of the ids, this waits for its end; of two that saw the same thing, one wins. The batch is sorted by id and
    /// names no id twice, so that two transactions lock the same ids in the same order.
    ///
    /// After an error the transaction must be rolled back.
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>>;
}

/// Where transactions come from.
pub trait Transactions: Send + Sync {
    /// A handle on a transaction; the work is given one, and the engine keeps another. When all are
    /// dropped before the commit, the transaction is undone. One that outlives the commit is of no use.
    type Tx: Join + Clone + 'static;

    /// Begins a transaction whose first write is a claim, in one round trip where the driver can. Waits at
    /// most `patience` for other transactions on the same id. Where the outcome is known beforehand, the first write is
    /// the receipt as it will be, and [`commit_written`](Self::commit_written) commits it; others wait on it alike. It is
    /// committed under the version that is given here, and has its own due time: `retention` is then `None`.
    ///
    /// `retention` is how long the outcome will most likely be kept. The claim is invisible before its outcome
    /// has taken its place, so an implementation that gains by it may let the claim fall due with the outcome.
    ///
    /// The wait for a connection counts as part of `patience`.
    fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> impl Future<Output = Result<(Self::Tx, Swapped), Fault>> + Send + 'a;

    /// Begins a transaction that writes nothing yet. Waits at most `patience` for a connection, and for other
    /// transactions where the database has only one at a time.
    fn begin_bare(&self, patience: Duration) -> impl Future<Output = Result<Self::Tx, Fault>> + Send + '_;

    /// Writes the completion and commits, in one round trip where the driver can. If the completion does
    /// not win, nothing is committed, and the fault is [`Fault::Failed`] with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict). It may fall due later than it asks for, by a 64th and a
    /// minute at most.
    fn commit<'a>(
        &'a self,
        tx: Self::Tx,
        completion: &'a Swap,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'a;

    /// Commits a transaction that [began](Self::begin) with a receipt to which nothing is to be added, and writes nothing,
    /// in one round trip where the driver can. `written` is the version that the receipt got. If the transaction does
    /// not have that receipt any more, because its work has ended it or has changed the receipt, nothing is committed,
    /// and the fault is [`Fault::Failed`] with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict). So it is if a statement
    /// of the work has failed and the database therefore commits nothing.
    fn commit_written<'a>(
        &'a self,
        tx: Self::Tx,
        id: &'a Id,
        written: Version,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'a;

    /// Undoes everything.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send + '_;

    /// Whether the work failed only because the database undid it in favour of another transaction (a
    /// deadlock, a serialization failure), so that the same again makes sense.
    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool;
}

/// Why a transaction did not begin or did not commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Another transaction has the id, and did not end in time.
    Busy,
    /// The database undid it in favour of another one: certainly nothing happened.
    Undone(Error),
    /// Anything else; the error says whether a commit may have happened.
    Failed(Error),
}
