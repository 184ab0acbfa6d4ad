//! Transactions that send a statement of the caller's together with their beginning.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use onceward::{Fault, Swap, Swapped, Transactions};

use super::join::{Cell, SqlTransaction, Value};

/// A transaction that has begun: what became of its claim, and the first row of the caller's statement.
#[non_exhaustive]
pub struct Begun<X> {
    /// A handle on the transaction.
    pub tx: X,
    /// What became of the claim.
    pub claimed: Swapped,
    /// The first row that the statement gave. It ran after the claim, whatever became of that.
    pub first: Option<Vec<Cell>>,
}

impl<X> Begun<X> {
    /// From its parts.
    pub fn new(tx: X, claimed: Swapped, first: Option<Vec<Cell>>) -> Self {
        Self { tx, claimed, first }
    }
}

impl<X> std::fmt::Debug for Begun<X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun")
            .field("claimed", &self.claimed)
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

/// The future of [`SqlTransactions::begin_with`]. In a box, because rustc cannot see that a future is `Send` that is
/// generic over one of such a trait.
pub type BeginFuture<'a, X> = Pin<Box<dyn Future<Output = Result<Begun<X>, Fault>> + Send + 'a>>;

/// [`Transactions`] whose statements are [`SqlTransaction`]'s.
///
/// For a driver of your own `impl SqlTransactions for MyTransactions {}` is enough; it then takes a round trip more.
pub trait SqlTransactions: Transactions<Tx: SqlTransaction + Sync> {
    /// As [`Transactions::begin`], and runs one statement after the claim, in the same round trip where the driver can.
    /// Placeholders are those of [`SqlTransaction::fetch`]. If the statement fails, no transaction has begun.
    fn begin_with<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> BeginFuture<'a, Self::Tx> {
        Box::pin(async move {
            let (mut tx, claimed) = self.begin(claim, retention, patience).await?;
            match tx.fetch(statement, values).await {
                Ok(first) => Ok(Begun { tx, claimed, first }),
                Err(error) => {
                    self.rollback(tx).await;
                    let undone = self.is_worth_repeating(&error);
                    Err(if undone { Fault::Undone(error) } else { Fault::Failed(error) })
                }
            }
        })
    }
}
