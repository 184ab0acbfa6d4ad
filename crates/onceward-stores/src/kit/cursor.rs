//! Cursors of scans, packed from and unpacked to a few numbers.

use onceward::{Cursor, Error, ErrorKind, Result};

/// Makes a cursor of these numbers.
pub(crate) fn pack(numbers: &[u64]) -> Cursor {
    Cursor(numbers.iter().flat_map(|number| number.to_be_bytes()).collect())
}

/// The numbers in a cursor; an error if it does not have exactly this many.
pub(crate) fn unpack<const N: usize>(cursor: &Cursor) -> Result<[u64; N]> {
    let (numbers, rest) = cursor.0.as_chunks::<8>();
    let numbers: &[[u8; 8]; N] = numbers.try_into().map_err(|_| foreign())?;
    if rest.is_empty() { Ok(numbers.map(u64::from_be_bytes)) } else { Err(foreign()) }
}

/// The error for a cursor of another store or another query.
pub(crate) fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "the cursor is not one of this store's")
}
