//! A row by its business key: inserted unless it is there, or inserted or changed.

use onceward::{Error, ErrorKind, Result};

use super::statement::{changes, check_names, invalid, locked, placeholders};
#[cfg(feature = "mysql")]
use crate::sql::join::Cell;
use crate::sql::join::{Dialect, SqlTransaction, Value};

/// The result of an insert.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// This call made the row.
    New,
    /// The row was there already: a duplicate.
    AlreadyThere,
}

/// Inserts a row unless its business key is there already. The table needs a unique index on that key.
pub async fn insert<T: SqlTransaction>(
    tx: &mut T,
    table: &str,
    row: &[(&str, Value<'_>)],
) -> Result<Inserted> {
    let columns: Vec<&str> = row.iter().map(|(column, _)| *column).collect();
    check_names(columns.iter().copied().chain([table]))?;
    let first = *columns.first().ok_or_else(|| invalid("a row without columns"))?;
    let dialect = tx.dialect();
    let placeholders = placeholders(dialect, 1, row.len());
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

/// The result of an insert or change.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upserted {
    /// This call made the row.
    Inserted,
    /// This call changed a row that was there.
    Changed,
    /// The row was there with the same values: a duplicate.
    Unchanged,
}

/// How often a row may be removed by others while this looks for it.
const ROUNDS_MAX: usize = 8;

/// Inserts a row by its business key, or changes the one that is there, and says which of the two happened, or that
/// neither was needed. The table needs a unique index on the key's column.
///
/// Of two calls with the same values one is told [`Upserted::Inserted`] or [`Upserted::Changed`], the other
/// [`Upserted::Unchanged`].
pub async fn upsert<T: SqlTransaction>(
    tx: &mut T,
    table: &str,
    key: (&str, Value<'_>),
    row: &[(&str, Value<'_>)],
) -> Result<Upserted> {
    if row.iter().any(|(column, _)| *column == key.0) {
        return Err(invalid(format!("`{}` is the key: it cannot be among the values to set", key.0)));
    }
    let whole: Vec<(&str, Value<'_>)> = [key].into_iter().chain(row.iter().copied()).collect();
    for _ in 0..ROUNDS_MAX {
        if insert(tx, table, &whole).await? == Inserted::New {
            return Ok(Upserted::Inserted);
        }
        // Without a lock the row could be removed before the update, which would then look like no difference.
        if locked(tx, table, key.0, key.0, key.1).await?.is_none() {
            continue;
        }
        let changed = !row.is_empty() && change_if_different(tx, table, key, row).await?;
        return Ok(if changed { Upserted::Changed } else { Upserted::Unchanged });
    }
    Err(Error::new(ErrorKind::Conflict, format!("a row of {table} came and went while it was written")))
}

async fn change_if_different<T: SqlTransaction>(
    tx: &mut T,
    table: &str,
    key: (&str, Value<'_>),
    row: &[(&str, Value<'_>)],
) -> Result<bool> {
    let dialect = tx.dialect();
    let set: Vec<String> = (row.iter().zip(placeholders(dialect, 1, row.len())))
        .map(|((column, _), value)| format!("{column} = {value}"))
        .collect();
    let different: Vec<String> = (row.iter().zip(placeholders(dialect, row.len() + 2, row.len())))
        .map(|((column, _), value)| is_different(dialect, column, &value))
        .collect();
    let by = placeholders(dialect, row.len() + 1, 1).remove(0);
    let update = format!(
        "UPDATE {table} SET {} WHERE {} = {by} AND ({})",
        set.join(", "),
        key.0,
        different.join(" OR ")
    );
    let values = row.iter().map(|(_, value)| *value);
    let values: Vec<Value<'_>> = values.clone().chain([key.1]).chain(values).collect();
    changes(tx, &update, &values).await
}

/// A comparison in which nothing equals nothing.
fn is_different(dialect: Dialect, column: &str, value: &str) -> String {
    match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => format!("{column} IS DISTINCT FROM {value}"),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => format!("{column} IS NOT {value}"),
        // By bytes: two texts that only a collation takes for the same are different.
        #[cfg(feature = "mysql")]
        Dialect::MySql => format!("NOT (BINARY {column} <=> BINARY {value})"),
    }
}
