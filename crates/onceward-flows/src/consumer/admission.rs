//! Transactions of one try, whose beginning also asks whether the try may go on: the fence, and what is recorded of its
//! messages. Receipt and question are sent in one round trip where the driver can.

use std::error::Error as StdError;
use std::sync::Mutex;
use std::time::Duration;

use onceward::{Fault, Id, Swap, Swapped, Transactions, Version};
use onceward_stores::sql::{Begun, Cell, SqlTransactions, Value};

use crate::statements::Statement;

/// Transactions that begin with a receipt and a question.
pub(super) struct WithQuestion<'a, T> {
    transactions: &'a T,
    statement: &'static str,
    values: Vec<Value<'a>>,
    /// Of the transaction that has begun last.
    answer: Mutex<Option<Vec<Cell>>>,
}

impl<'a, T> WithQuestion<'a, T> {
    pub(super) fn new(transactions: &'a T, question: &Statement, values: &[Value<'a>]) -> Self {
        Self {
            transactions,
            statement: question.text,
            values: question.values(values),
            answer: Mutex::new(None),
        }
    }

    /// Takes the answer in the current transaction: a row, if there is one.
    pub(super) fn take_answer(&self) -> Option<Vec<Cell>> {
        self.answer.lock().expect("no panic inside").take()
    }
}

impl<T: SqlTransactions> Transactions for WithQuestion<'_, T> {
    type Tx = T::Tx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(T::Tx, Swapped), Fault> {
        let begin = self.transactions.begin_with(claim, retention, patience, self.statement, &self.values);
        let Begun { tx, claimed, first, .. } = begin.await?;
        *self.answer.lock().expect("no panic inside") = first;
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
