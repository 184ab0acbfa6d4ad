//! Transactions of one try, which also look at their beginning whether the try may go on: the fence, and what is recorded of
//! its messages. Receipt and look are sent in one round trip where the driver can.

use std::error::Error as StdError;
use std::sync::Mutex;
use std::time::Duration;

use onceward::{Fault, Id, Swap, Swapped, Transactions, Version};
use onceward_stores::sql::{Begun, Cell, SqlTransactions, Value};

use crate::statements::Statement;

/// Transactions that begin with a receipt and the statement that admits it.
pub(super) struct AdmittingTransactions<'a, T> {
    transactions: &'a T,
    statement: &'static str,
    values: Vec<Value<'a>>,
    /// The row of the transaction that has begun last.
    admitted: Mutex<Option<Vec<Cell>>>,
}

impl<'a, T> AdmittingTransactions<'a, T> {
    pub(super) fn new(transactions: &'a T, admit: &Statement, values: &[Value<'a>]) -> Self {
        Self { transactions, statement: admit.text, values: admit.values(values), admitted: Mutex::new(None) }
    }

    /// Takes the row that the current transaction was given, if there is one.
    pub(super) fn take_admitted(&self) -> Option<Vec<Cell>> {
        self.admitted.lock().expect("no panic inside").take()
    }
}

impl<T: SqlTransactions> Transactions for AdmittingTransactions<'_, T> {
    type Tx = T::Tx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(T::Tx, Swapped), Fault> {
        let begin = self.transactions.begin_with(claim, retention, patience, self.statement, &self.values);
        let Begun { tx, claimed, first, .. } = begin.await?;
        *self.admitted.lock().expect("no panic inside") = first;
        Ok((tx, claimed))
    }

    async fn begin_bare(&self, patience: Duration) -> Result<T::Tx, Fault> {
        self.transactions.begin_bare(patience).await
    }

    async fn commit<'a>(&'a self, tx: T::Tx, completion: &'a Swap) -> Result<(), Fault> {
        self.transactions.commit(tx, completion).await
    }

    async fn commit_written<'a>(&'a self, tx: T::Tx, id: &'a Id, written: Version) -> Result<(), Fault> {
        self.transactions.commit_written(tx, id, written).await
    }

    async fn rollback(&self, tx: T::Tx) {
        self.transactions.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn StdError + 'static)) -> bool {
        self.transactions.is_worth_repeating(error)
    }
}
