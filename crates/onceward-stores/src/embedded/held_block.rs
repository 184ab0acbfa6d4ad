//! The byte format of the table `held`: the rows that groups left held, and which of them ended in later groups.
//!
//! ```text
//! key   = sequence of the group: u64  number: u32           big endian
//! value = entry*                                            number 1 and up: rows, never rewritten
//!         version: u64*                                     number 0: what ended in this group
//! entry = version: u64  length of the id: u16  length of the row: u32  id  row      little endian; row.rs
//! ```

use onceward::{Error, ErrorKind, Id, Result};

const HEAD_BYTES: usize = 14;
pub(crate) const KEY_BYTES: usize = 12;

/// The number of the list of what ended.
pub(crate) const ENDED: u32 = 0;
/// The number of the block of rows that share one.
pub(crate) const SHARED: u32 = 1;

/// A block of rows, or a list of what ended: the sequence of its group, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockName {
    pub(crate) sequence: u64,
    pub(crate) number: u32,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) block: BlockName,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// A row as a block lists it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) version: u64,
    pub(crate) id: Id,
    /// Where in the block the row begins.
    pub(crate) at: usize,
    pub(crate) row: &'a [u8],
}

impl BlockName {
    pub(crate) fn to_key(self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&self.sequence.to_be_bytes());
        key[8..].copy_from_slice(&self.number.to_be_bytes());
        key
    }

    pub(crate) fn from_key(key: &[u8]) -> Result<Self> {
        let (sequence, number) = key.split_first_chunk().ok_or_else(damaged)?;
        let number = number.try_into().map_err(|_| damaged())?;
        Ok(Self { sequence: u64::from_be_bytes(*sequence), number: u32::from_be_bytes(number) })
    }
}

/// Adds a row to a block. Returns where it begins.
pub(crate) fn push(block: &mut Vec<u8>, version: u64, id: &Id, row: &[u8]) -> usize {
    let id = id.as_bytes();
    block.extend(version.to_le_bytes());
    block.extend(u16::try_from(id.len()).expect("ids are bounded far below").to_le_bytes());
    block.extend(u32::try_from(row.len()).expect("receipts are bounded far below").to_le_bytes());
    block.extend_from_slice(id);
    block.extend_from_slice(row);
    block.len() - row.len()
}

/// The rows of a block.
pub(crate) fn entries(block: &[u8]) -> impl Iterator<Item = Result<Entry<'_>>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= block.len() {
            return None;
        }
        let entry = entry(block, at);
        at = entry.as_ref().map_or(block.len(), |entry| entry.at + entry.row.len());
        Some(entry.ok_or_else(damaged))
    })
}

/// The versions in a list of what ended.
pub(crate) fn ended(list: &[u8]) -> Result<impl Iterator<Item = u64>> {
    let (versions, rest) = list.as_chunks();
    if rest.is_empty() { Ok(versions.iter().copied().map(u64::from_le_bytes)) } else { Err(damaged()) }
}

fn entry(block: &[u8], start: usize) -> Option<Entry<'_>> {
    let (head, rest) = block[start..].split_first_chunk::<HEAD_BYTES>()?;
    let id_len = usize::from(u16::from_le_bytes([head[8], head[9]]));
    let row_len = u32::from_le_bytes(std::array::from_fn(|i| head[10 + i]));
    let (id, rest) = rest.split_at_checked(id_len)?;
    let row = rest.get(..usize::try_from(row_len).ok()?)?;
    Some(Entry {
        version: u64::from_le_bytes(std::array::from_fn(|i| head[i])),
        id: Id::from_bytes(id).ok()?,
        at: start + HEAD_BYTES + id_len,
        row,
    })
}

fn damaged() -> Error {
    Error::new(ErrorKind::Damaged, "the table of held rows is damaged; restore the folder from a copy")
}

#[cfg(test)]
#[path = "held_block_test.rs"]
mod tests;
