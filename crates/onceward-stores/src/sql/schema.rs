//! Decides which migrations a database needs. The migrations themselves are in the dialects.
//!
//! `onceward_schema` has a row for each migration: its number, and the format of the tables (`FORMAT`). Tables that
//! were made before the first release have no `format` there; they are refused.

use onceward::{Error, ErrorKind, Result};

pub use crate::kit::migrated::Migrated;

/// The format that migrations are counted in. 1 was never released.
pub(super) const FORMAT: i32 = 2;

/// Whether opening a store brings its tables up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Migrations {
    /// Those that are missing are applied.
    Apply,
    /// They are applied by a user with more rights (`onceward migrate`); if one is missing, opening fails.
    Require,
}

/// What was found in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundTables {
    /// Whether a table called `onceward_receipts` is there.
    pub(super) receipts: bool,
    /// What the table `onceward_schema` says.
    pub(super) schema: SchemaTable,
}

/// What the table `onceward_schema` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaTable {
    /// It is not there.
    Absent,
    /// It is there, and was not made by onceward.
    Foreign,
    /// It was made before the first release.
    Unreleased,
    /// The last migration that it names; 0 if there is none.
    Applied(u32),
}

/// How many of the known migrations are there; an error if the tables are foreign.
pub(super) fn applied(present: FoundTables, known: u32) -> Result<u32> {
    match (present.schema, present.receipts) {
        (SchemaTable::Foreign, _) => Err(foreign(
            "there is a table `onceward_schema` that was not made by onceward; rename it, or use another database or schema",
        )),
        (SchemaTable::Unreleased, _) => Err(foreign(
            "the tables were made before the first release, and this onceward cannot read them; drop `onceward_receipts` and `onceward_schema`, which forgets all receipts, or use another database",
        )),
        (SchemaTable::Absent | SchemaTable::Applied(0), true) => Err(foreign(
            "there is a table `onceward_receipts` that was not made by onceward; rename it, or use another database or schema",
        )),
        (SchemaTable::Applied(last), false) if last > 0 => Err(foreign(
            "`onceward_schema` is there but `onceward_receipts` is not; restore it, or drop `onceward_schema` to start with nothing",
        )),
        (SchemaTable::Applied(last), _) if last > known => Err(foreign(format!(
            "the tables are at version {last}, this onceward knows up to {known}; use a newer one"
        ))),
        (SchemaTable::Applied(last), _) => Ok(last),
        (SchemaTable::Absent, _) => Ok(0),
    }
}

/// The error if migrations are missing and may not be applied.
pub(super) fn missing(from: u32, known: u32) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the tables are at version {from}, {known} is needed; run `onceward migrate --store URL` first"
        ),
    )
}

fn foreign(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Foreign, detail)
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
