//! The second seam: a transaction of the caller's own that a receipt rides in. Key and business write
//! then commit together or not at all, and the row lock is the lease.
//!
//! Like the store seam it contains no rule of the protocol: it swaps records, inside a transaction.

use std::future::Future;
use std::time::Duration;

use crate::error::Error;
use crate::store::{Fut, Swap, Swapped};

/// A transaction under way, in the database that the engine's store is in.
pub trait Join: Send {
    /// As [`Store::swap`](crate::Store::swap) with this one swap, but inside the transaction: others see
    /// it when the transaction commits, and never if it does not. While another transaction has written
    /// the same id, this waits for its end; of two that saw the same thing, one wins.
    ///
    /// After an error the transaction must be rolled back.
    fn swap<'a>(&'a mut self, swap: &'a Swap) -> Fut<'a, Swapped>;
}

/// Where transactions come from.
pub trait Transactions: Send + Sync {
    /// A handle on a transaction; the work is given one, and the engine keeps another. When all are
    /// dropped before the commit, the transaction is undone. One that outlives the commit is of no use.
    type Tx: Join + Clone + 'static;

    /// Begins a transaction whose first deed is a claim, in one round trip where the driver can. Waits at
    /// most `patience` for other transactions on the same id.
    ///
    /// `kept_for` is how long the outcome will most likely be kept. Nobody sees the claim before its outcome has
    /// taken its place, so one who gains by it may let the claim fall due with the outcome.
    fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        kept_for: Option<Duration>,
        patience: Duration,
    ) -> impl Future<Output = Result<(Self::Tx, Swapped), Fault>> + Send + 'a;

    /// Writes the completion and commits, in one round trip where the driver can. If the completion does
    /// not win, nothing is committed. It may fall due later than it asks for, by a 64th and a minute at most.
    fn commit<'a>(
        &'a self,
        tx: Self::Tx,
        completion: &'a Swap,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'a;

    /// Undoes everything.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send + '_;

    /// Whether the work failed only because the database undid it in favour of another transaction (a
    /// deadlock, a serialization failure), so that the same again makes sense.
    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool;
}

/// Why a transaction did not begin or did not commit.
#[derive(Debug)]
pub enum Fault {
    /// Another transaction has the id, and did not end in time.
    Busy,
    /// The database undid it in favour of another one: certainly nothing happened.
    Undone(Error),
    /// Anything else; the error says whether a commit may have happened.
    Failed(Error),
}
