//! Prepared statements for transactions of the bare driver, which has no place for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use onceward::Result;
use tokio_postgres::{Statement, Transaction};

use super::errors::{CallEffect, failed};
use super::join::{fetch, fetch_unprepared};
use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};

/// Most statements of one connection; what comes after that is not prepared. This project's own are a few dozen.
const STATEMENTS_MAX: usize = 256;

/// The prepared statements of one connection of `tokio-postgres`: without them the server parses and plans each statement
/// of this project again. Keep one beside each `tokio_postgres::Client`, for as long as that; in a transaction of another
/// client its statements do not exist and fail. (A pool of `deadpool-postgres` does all that by itself.)
///
/// ```no_run
/// # use onceward_stores::{sql::postgres::StatementCache, tokio_postgres};
/// # async fn add(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let statements = StatementCache::new();
/// loop {
///     let mut tx = client.transaction().await?;
///     // ... the business writes, then: outbox.add_all(&mut statements.within(&mut tx), messages)
///     let mut prepared = statements.within(&mut tx);
///     # let _ = &mut prepared;
///     tx.commit().await?;
/// }
/// # }
/// ```
#[derive(Default)]
pub struct StatementCache(Mutex<HashMap<String, Statement>>);

/// A transaction whose statements are prepared once for each connection: [`StatementCache::within`].
pub struct PreparedTransaction<'t, 'c> {
    tx: &'t mut Transaction<'c>,
    statements: &'t StatementCache,
}

impl StatementCache {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A transaction of the connection that this is kept for.
    pub fn within<'t, 'c>(&'t self, tx: &'t mut Transaction<'c>) -> PreparedTransaction<'t, 'c> {
        PreparedTransaction { tx, statements: self }
    }

    fn find(&self, statement: &str) -> Found {
        let statements = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match statements.get(statement) {
            Some(prepared) => Found::Prepared(prepared.clone()),
            None if statements.len() < STATEMENTS_MAX => Found::Absent,
            None => Found::Full,
        }
    }

    fn keep(&self, statement: &str, prepared: &Statement) {
        let mut statements = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(statement.to_owned(), prepared.clone());
    }
}

/// What the cache says of a statement.
enum Found {
    Prepared(Statement),
    Absent,
    Full,
}

impl SqlTransaction for PreparedTransaction<'_, '_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        let prepared = match self.statements.find(statement) {
            Found::Prepared(prepared) => prepared,
            Found::Full => return fetch_unprepared(self.tx, statement, values).await,
            Found::Absent => {
                // It stays prepared when the transaction is rolled back.
                let prepared = self.tx.prepare(statement).await;
                let prepared = prepared.map_err(|error| failed(CallEffect::Reads, error))?;
                self.statements.keep(statement, &prepared);
                prepared
            }
        };
        fetch(&*self.tx, &prepared, values).await
    }
}

impl fmt::Debug for StatementCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statements = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("StatementCache").field("statements", &statements).finish()
    }
}

impl fmt::Debug for PreparedTransaction<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedTransaction").finish_non_exhaustive()
    }
}
