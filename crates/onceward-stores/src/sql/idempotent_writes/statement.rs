//! What the statements of these writes have in common: placeholders, names, locking reads, and whether a row was
//! written.

use onceward::{Error, ErrorKind, Result};

use crate::sql::join::{Cell, Dialect, SqlTransaction, Value};

/// Runs a statement that writes at most one row, and returns whether it did.
pub(super) async fn changes<T: SqlTransaction>(
    tx: &mut T,
    statement: &str,
    values: &[Value<'_>],
) -> Result<bool> {
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

/// One column of a row as it is now, and the row locked until the transaction ends.
///
/// A plain read may come from a snapshot that is older than what an update has just compared with. SQLite needs no
/// lock: a transaction that has written sees the latest rows, and one that has not fails to write if they changed.
pub(super) async fn locked<T: SqlTransaction>(
    tx: &mut T,
    table: &str,
    column: &str,
    by: &str,
    key: Value<'_>,
) -> Result<Option<Cell>> {
    let dialect = tx.dialect();
    let lock = match dialect {
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => "",
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        _ => " FOR UPDATE",
    };
    let select = format!("SELECT {column} FROM {table} WHERE {by} = {}{lock}", placeholder(dialect, 1));
    Ok(tx.fetch(&select, &[key]).await?.and_then(|row| row.into_iter().next()))
}

/// The text of a cell. Some drivers hand out text as bytes, and a number where a column of numbers was asked for.
pub(super) fn text(cell: Cell) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text),
        Cell::Bytes(bytes) => String::from_utf8(bytes).ok(),
        Cell::Int(number) => Some(number.to_string()),
        Cell::Null => None,
    }
}

/// A column of texts as it is compared with others by its bytes: the collation of the column may take `A` for `a`.
pub(super) fn exact(dialect: Dialect, column: &str) -> String {
    match dialect {
        // Collations that are not by bytes must be asked for, and an index can be on the column only.
        #[cfg(feature = "postgres")]
        Dialect::Postgres => column.to_owned(),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => format!("{column} COLLATE BINARY"),
        #[cfg(feature = "mysql")]
        Dialect::MySql => format!("BINARY {column}"),
    }
}

pub(super) fn placeholder(dialect: Dialect, number: usize) -> String {
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

/// The placeholders from one number on.
pub(super) fn placeholders(dialect: Dialect, from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|number| placeholder(dialect, number)).collect()
}

/// Names go into the statement as they are, so they must be nothing but names.
pub(super) fn check_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<()> {
    let plain = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
    };
    match names.into_iter().find(|name| !plain(name)) {
        Some(name) => Err(invalid(format!("`{name}` is not the plain name of a table or column"))),
        None => Ok(()),
    }
}

pub(super) fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, detail.into())
}
