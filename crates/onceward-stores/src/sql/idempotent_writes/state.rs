//! One change of state, in one conditional update.

use onceward::Result;

use super::statement::{changes, check_names, exact, locked, placeholder, text};
use crate::sql::join::{SqlTransaction, Value};

/// A column of states, and how to find the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct States<'a> {
    /// The table.
    pub table: &'a str,
    /// The column by which a row is found; it should be unique.
    pub key: &'a str,
    /// The column that holds the state, as text.
    pub state: &'a str,
}

impl<'a> States<'a> {
    /// The column `state` of `table`, whose rows are found by the column `key`.
    pub const fn new(table: &'a str, key: &'a str, state: &'a str) -> Self {
        Self { table, key, state }
    }
}

/// The result of a change of state.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// This call changed it. Now is the time for side effects, and only now.
    Changed,
    /// It was there already: a duplicate.
    AlreadyThere,
    /// It is in another state, or there is no such row.
    Illegal,
}

/// Moves a row from one state to another, in one conditional update: of any number of callers, one is told
/// [`Transition::Changed`].
pub async fn transition<T: SqlTransaction>(
    tx: &mut T,
    of: States<'_>,
    key: Value<'_>,
    from: &str,
    to: &str,
) -> Result<Transition> {
    let States { table, key: by, state } = of;
    check_names([table, by, state])?;
    let dialect = tx.dialect();
    let [one, two, three] = [1, 2, 3].map(|number| placeholder(dialect, number));
    let update = format!(
        "UPDATE {table} SET {state} = {one} WHERE {by} = {two} AND {} = {three}",
        exact(dialect, state)
    );
    if from != to && changes(tx, &update, &[Value::Text(to), key, Value::Text(from)]).await? {
        return Ok(Transition::Changed);
    }
    let now = locked(tx, table, state, by, key).await?.and_then(text);
    Ok(if now.as_deref() == Some(to) { Transition::AlreadyThere } else { Transition::Illegal })
}
