//! Writes that are idempotent by themselves: a change of state, and an insert by business key. Each reports
//! whether this call made the change, so that side effects run only once.

use onceward::{Error, ErrorKind, Result};

use super::join::{Cell, Dialect, SqlTransaction, Value};

/// A column of states, and how to find the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States<'a> {
    /// The table.
    pub table: &'a str,
    /// The column by which a row is found; it should be unique.
    pub key: &'a str,
    /// The column that holds the state, as text.
    pub state: &'a str,
}

/// The result of a change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// This call changed it. Now is the time for side effects, and only now.
    Changed,
    /// It was there already: a duplicate.
    AlreadyThere,
    /// It is in another state, or there is no such row.
    Illegal,
}

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// This call made the row.
    New,
    /// The row was there already: a duplicate.
    AlreadyThere,
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
    check_names(&[table, by, state])?;
    let dialect = tx.dialect();
    let [one, two, three] = [1, 2, 3].map(|number| placeholder(dialect, number));
    let update = format!("UPDATE {table} SET {state} = {one} WHERE {by} = {two} AND {state} = {three}");
    if from != to && changes(tx, &update, &[Value::Text(to), key, Value::Text(from)]).await? {
        return Ok(Transition::Changed);
    }
    let look = format!("SELECT {state} FROM {table} WHERE {by} = {one}");
    let now = tx.fetch(&look, &[key]).await?;
    Ok(match now.as_deref() {
        Some([Cell::Text(now), ..]) if now == to => Transition::AlreadyThere,
        Some([Cell::Bytes(now), ..]) if now == to.as_bytes() => Transition::AlreadyThere,
        _ => Transition::Illegal,
    })
}

/// Inserts a row unless its business key is there already. The table needs a unique index on that key.
pub async fn insert<T: SqlTransaction>(
    tx: &mut T,
    table: &str,
    row: &[(&str, Value<'_>)],
) -> Result<Inserted> {
    let columns: Vec<&str> = row.iter().map(|(column, _)| *column).collect();
    check_names(&[&[table], &columns[..]].concat())?;
    let first = *columns.first().ok_or_else(|| invalid("a row without columns"))?;
    let dialect = tx.dialect();
    let placeholders: Vec<String> = (1..=row.len()).map(|number| placeholder(dialect, number)).collect();
    let values: Vec<Value<'_>> = row.iter().map(|(_, value)| *value).collect();
    let insert = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), placeholders.join(", "));
    let new = match dialect {
        #[cfg(feature = "mysql")]
        Dialect::MySql => insert_unless_there(tx, &insert, first, &values).await?,
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => {
            let _ = first;
            tx.fetch(&format!("{insert} ON CONFLICT DO NOTHING RETURNING 1"), &values).await?.is_some()
        }
    };
    Ok(if new { Inserted::New } else { Inserted::AlreadyThere })
}

/// The number of affected rows is not enough: some drivers (sqlx) have the server count a duplicate as one row. So a
/// duplicate sets the connection's last insert id to a marker.
#[cfg(feature = "mysql")]
async fn insert_unless_there<T: SqlTransaction>(
    tx: &mut T,
    insert: &str,
    column: &str,
    values: &[Value<'_>],
) -> Result<bool> {
    const MARK: u64 = u64::MAX;
    tx.fetch("SELECT LAST_INSERT_ID(0)", &[]).await?;
    let insert = format!(
        "{insert} ON DUPLICATE KEY UPDATE {column} = IF(LAST_INSERT_ID({MARK}) = 0, {column}, {column})"
    );
    tx.fetch(&insert, values).await?;
    let marked = tx.fetch(&format!("SELECT LAST_INSERT_ID() = {MARK}"), &[]).await?;
    Ok(marked.as_deref() == Some(&[Cell::Int(0)]))
}

/// Runs a statement that writes at most one row, and returns whether it did.
async fn changes<T: SqlTransaction>(tx: &mut T, statement: &str, values: &[Value<'_>]) -> Result<bool> {
    match tx.dialect() {
        #[cfg(feature = "mysql")]
        Dialect::MySql => {
            tx.fetch(statement, values).await?;
            Ok(tx.fetch("SELECT ROW_COUNT() > 0", &[]).await?.as_deref() == Some(&[Cell::Int(1)]))
        }
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        _ => Ok(tx.fetch(&format!("{statement} RETURNING 1"), values).await?.is_some()),
    }
}

fn placeholder(dialect: Dialect, number: usize) -> String {
    match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => format!("${number}"),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => format!("?{number}"),
        #[cfg(feature = "mysql")]
        Dialect::MySql => {
            let _ = number;
            "?".to_owned()
        }
    }
}

/// Names go into the statement as they are, so they must be nothing but names.
fn check_names(names: &[&str]) -> Result<()> {
    let plain = |name: &&str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
    };
    match names.iter().find(|name| !plain(name)) {
        Some(name) => Err(invalid(&format!("`{name}` is not the plain name of a table or column"))),
        None => Ok(()),
    }
}

fn invalid(detail: &str) -> Error {
    Error::new(ErrorKind::Invalid, detail.to_owned())
}
