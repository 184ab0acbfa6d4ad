//! What a migration did.

/// The result of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The number of the last migration that was there before; 0 in an empty database.
    pub from: u32,
    /// The number of the last one now.
    pub to: u32,
}

impl Migrated {
    /// From the migration with this number to that one.
    pub fn new(from: u32, to: u32) -> Self {
        Self { from, to }
    }
}
