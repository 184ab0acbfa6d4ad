//! A receipt in a transaction that the caller already holds, whatever driver it came from.
//!
//! [`SqlTransaction`] is all that is needed: the dialect, and how to run one statement. This crate implements it
//! for its own drivers; for another driver or ORM it takes a dozen lines.

use std::future::Future;

use onceward::{Join, Result, StoreFuture, Swap, Swapped};

/// The SQL that a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres,
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    MySql,
}

/// A value for a parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// Text: printable ASCII.
    Text(&'a str),
    /// A whole number, or nothing.
    Int(Option<i64>),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cell {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A transaction under way.
pub trait SqlTransaction: Send {
    /// The dialect of its database.
    fn dialect(&self) -> Dialect;

    /// Runs one statement and returns the first row, if there is one. Placeholders are numbered from 1 in the
    /// syntax of the dialect.
    fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Result<Option<Vec<Cell>>>> + Send + 'a;
}

/// A [`SqlTransaction`] whose type is not known: what effects that are declared once are given.
///
/// `&mut dyn AnyTransaction` is a [`SqlTransaction`] itself. It is implemented for everything that is one.
pub trait AnyTransaction: Send {
    /// The dialect of its database.
    fn any_dialect(&self) -> Dialect;

    /// As [`SqlTransaction::fetch`].
    fn any_fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> StoreFuture<'a, Option<Vec<Cell>>>;
}

impl<T: SqlTransaction> AnyTransaction for T {
    fn any_dialect(&self) -> Dialect {
        self.dialect()
    }

    fn any_fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> StoreFuture<'a, Option<Vec<Cell>>> {
        Box::pin(self.fetch(statement, values))
    }
}

impl SqlTransaction for &mut (dyn AnyTransaction + '_) {
    fn dialect(&self) -> Dialect {
        (**self).any_dialect()
    }

    fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Result<Option<Vec<Cell>>>> + Send + 'a {
        (**self).any_fetch(statement, values)
    }
}

/// A transaction of the caller's own that receipts are written in:
/// `onceward.claim_in(&mut InTransaction(&mut tx), &ask)`.
pub struct InTransaction<'t, T>(pub &'t mut T);

impl<T: SqlTransaction> Join for InTransaction<'_, T> {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(swap_each(self.0, batch))
    }
}

/// Swaps inside a transaction, one after the other: a batch is rarely more than a receipt or two here.
pub(super) async fn swap_each<T: SqlTransaction>(tx: &mut T, batch: &[Swap]) -> Result<Vec<Swapped>> {
    let mut answers = Vec::with_capacity(batch.len());
    for swap in batch {
        answers.push(match tx.dialect() {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => super::postgres::swap_in(tx, swap).await?,
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => super::sqlite::swap_in(tx, swap).await?,
            #[cfg(feature = "mysql")]
            Dialect::MySql => super::mysql::swap_in(tx, swap).await?,
        });
    }
    Ok(answers)
}

impl<T: std::fmt::Debug> std::fmt::Debug for InTransaction<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InTransaction").field(&self.0).finish()
    }
}

/// The cells of a row as numbers and bytes; a missing cell, or one of another type, is `None`.
pub(super) struct Cells(pub(super) Vec<Cell>);

impl Cells {
    pub(super) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Cell::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// A record from the columns version, state, remaining, created, updated (microseconds), receipt.
    pub(super) fn found(&self) -> Result<onceward::Found> {
        let state = match self.0.get(1) {
            Some(Cell::Text(text)) => text.as_str(),
            Some(Cell::Bytes(bytes)) => std::str::from_utf8(bytes).unwrap_or("\u{fffd}"),
            _ => "",
        };
        let receipt = match self.0.get(5) {
            Some(Cell::Bytes(bytes)) => bytes.clone(),
            _ => return Err(super::row::damaged("it has no receipt")),
        };
        super::row::found(super::row::Columns {
            version: self.int(0).unwrap_or_default(),
            state,
            remaining_us: self.int(2),
            created_us: self.int(3).unwrap_or_default(),
            updated_us: self.int(4).unwrap_or_default(),
            receipt: receipt.into(),
        })
    }
}
