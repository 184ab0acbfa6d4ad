//! Row blocks: lists of ids and versions, stored as one value.
//!
//! One index entry per row would cost as much as the row itself. Rows of one group that belong
//! together are therefore listed in one block. A block is never rewritten: an entry whose version is no
//! longer its row's is stale, and a block with only stale entries is removed.
//!
//! ```text
//! entry = version: u64  length of the id: u16  id          little endian
//! block = entry*
//! ```

use onceward::{Error, ErrorKind, Id, Result};

const HEAD_BYTES: usize = 10;

pub(crate) fn push(block: &mut Vec<u8>, version: u64, id: &Id) {
    let id = id.as_bytes();
    block.extend(version.to_le_bytes());
    block.extend(u16::try_from(id.len()).expect("ids are bounded far below").to_le_bytes());
    block.extend_from_slice(id);
}

pub(crate) fn entries(mut block: &[u8]) -> impl Iterator<Item = Result<(u64, Id)>> {
    std::iter::from_fn(move || {
        if block.is_empty() {
            return None;
        }
        let entry =
            split(block).and_then(|(version, id, rest)| Some((version, Id::from_bytes(id).ok()?, rest)));
        let Some((version, id, rest)) = entry else {
            block = &[];
            return Some(Err(Error::new(
                ErrorKind::Damaged,
                "a list of rows is damaged; restore the folder from a copy",
            )));
        };
        block = rest;
        Some(Ok((version, id)))
    })
}

fn split(block: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (head, rest) = block.split_first_chunk::<HEAD_BYTES>()?;
    let version = u64::from_le_bytes(std::array::from_fn(|i| head[i]));
    let (id, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([head[8], head[9]])))?;
    Some((version, id, rest))
}
