//! Which migrations a database has had, and which it needs. What is in them is each dialect's own.

use onceward::{Error, ErrorKind, Result};

/// Whether opening a store brings its tables up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// Those that are missing are applied.
    Apply,
    /// They are applied by somebody with more rights (`onceward migrate`); if one is missing, opening fails.
    Require,
}

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The number of the last migration that was there before; 0 in an empty database.
    pub from: u32,
    /// The number of the last one now.
    pub to: u32,
}

/// What was found in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    /// Whether a table called `onceward_receipts` is there.
    pub(super) receipts: bool,
    /// Whether a table called `onceward_schema` is there, and the last migration that it names.
    pub(super) schema: Option<u32>,
}

/// How many of the known migrations are there; an error if the tables are not ours to touch.
pub(super) fn applied(present: Present, known: u32) -> Result<u32> {
    match (present.schema, present.receipts) {
        (None | Some(0), true) => Err(foreign(
            "there is a table `onceward_receipts` that was not made by onceward; rename it, or use another database or schema",
        )),
        (Some(last), false) if last > 0 => Err(foreign(
            "`onceward_schema` is there but `onceward_receipts` is not; restore it, or drop `onceward_schema` to start with nothing",
        )),
        (Some(last), _) if last > known => Err(foreign(format!(
            "the tables are of version {last}, this onceward knows up to {known}; use a newer one"
        ))),
        (last, _) => Ok(last.unwrap_or(0)),
    }
}

/// What to say where migrations are missing and may not be applied.
pub(super) fn missing(from: u32, known: u32) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the tables are of version {from}, {known} is needed; run `onceward migrate --store URL` first"
        ),
    )
}

pub(super) fn foreign(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Foreign, detail)
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
