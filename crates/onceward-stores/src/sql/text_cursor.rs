//! Cursors of scans, for the databases whose tables are sorted by the texts of the ids.
//!
//! ```text
//! byte 0        the kind of scan
//! bytes 1..9    when the row falls due, in microseconds, big endian
//! bytes 9..13   lengths of scope and key, big endian
//! then          scope, key, operation
//! ```
//!
//! It names a row by its bytes and not by an id: a foreign row may be the last one of a page.

use onceward::{Cursor, Id, Result};

use crate::kit::cursor::foreign;

/// Which rows a scan reads, and in which order. A cursor is good for its own kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanOrder {
    /// By due time, then by id.
    Due = 1,
    /// By id.
    Id = 2,
    /// Of one state, by due time; those that are never due come later.
    State = 3,
    /// Of one state, those that are never due, by id.
    Never = 4,
}

/// The last row of a page. The default is before all rows: no part of an id is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPosition {
    pub(super) due_us: i64,
    pub(super) scope: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) operation: Vec<u8>,
}

impl TextPosition {
    pub(super) fn cursor(&self, order: ScanOrder) -> Cursor {
        let length = |text: &[u8]| u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
        let parts: [&[u8]; 7] = [
            &[order as u8],
            &self.due_us.to_be_bytes(),
            &length(&self.scope),
            &length(&self.key),
            &self.scope,
            &self.key,
            &self.operation,
        ];
        Cursor(parts.concat().into())
    }

    /// The position in a cursor of this kind.
    pub(super) fn from_cursor(cursor: &Cursor, order: ScanOrder) -> Result<Self> {
        Self::read(&cursor.0, order).ok_or_else(foreign)
    }

    /// Whether it is a cursor of this kind, as far as its first byte tells.
    pub(super) fn is_of(cursor: &Cursor, order: ScanOrder) -> bool {
        cursor.0.first() == Some(&(order as u8))
    }

    /// The id, if it is one. An invalid one was not written by this crate, and no caller can ask for it.
    pub(super) fn id(&self) -> Option<Id> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        match Id::from_columns(text(&self.scope), text(&self.operation), text(&self.key)) {
            Ok(id) => Some(id),
            Err(error) => {
                tracing::error!(%error, "a row of onceward_receipts has an id that cannot be one, it is left out");
                None
            }
        }
    }

    fn read(bytes: &[u8], order: ScanOrder) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (due_us, rest) = rest.split_first_chunk::<8>()?;
        let (scope_length, rest) = rest.split_first_chunk::<2>()?;
        let (key_length, rest) = rest.split_first_chunk::<2>()?;
        let (scope, rest) = rest.split_at_checked(u16::from_be_bytes(*scope_length).into())?;
        let (key, operation) = rest.split_at_checked(u16::from_be_bytes(*key_length).into())?;
        (*kind == order as u8).then(|| Self {
            due_us: i64::from_be_bytes(*due_us),
            scope: scope.to_vec(),
            key: key.to_vec(),
            operation: operation.to_vec(),
        })
    }
}

#[cfg(test)]
#[path = "text_cursor_test.rs"]
mod tests;
