//! A record as it is stored.
//!
//! ```text
//! bytes 0..3     "ow1": the format
//! byte 3         the letter of the state
//! bytes 4..12    version, big endian
//! bytes 12..20   created: the version of its first write
//! bytes 20..28   when it falls due, in microseconds; all bits set for never
//! then           the receipt
//! ```
//!
//! The scripts write and compare this form; here it is only read.

use bytes::Bytes;
use onceward::{Age, Due, Error, ErrorKind, Found, Id, Result, Version};

use super::keys;

/// Bytes before the receipt.
const HEAD_BYTES: usize = 28;
/// The due time of what never falls due.
const NEVER: u64 = u64::MAX;

/// Reads a record at this time of the server's clock.
pub(super) fn found(id: &Id, value: Vec<u8>, now_us: u64) -> Result<Found> {
    let Some((state, [version, created, due])) = head(&value) else { return Err(unreadable(id, &value)) };
    let due = Due::between(now_us, (due != NEVER).then_some(due));
    let age = Age::between(now_us, created, version);
    Ok(Found::new(Version(version), state, due, age, Bytes::from(value).slice(HEAD_BYTES..)))
}

fn head(value: &[u8]) -> Option<(onceward::State, [u64; 3])> {
    let (&[b'o', b'w', b'1', letter], rest) = value.split_first_chunk::<4>()? else { return None };
    let (numbers, _) = rest.split_first_chunk::<24>()?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let numbers: &[[u8; 8]; 3] = numbers.try_into().ok()?;
    Some((keys::state(letter)?, numbers.map(u64::from_be_bytes)))
}

fn unreadable(id: &Id, value: &[u8]) -> Error {
    if value.starts_with(b"ow") {
        let detail = format!(
            "the record of {id:?} in Redis cannot be read: it is damaged, or was written by a later version; upgrade onceward, or restore it"
        );
        return Error::new(ErrorKind::Damaged, detail);
    }
    Error::new(ErrorKind::Foreign, foreign(id))
}

/// The message for a key under our prefix that another program has written.
pub(super) fn foreign(id: &Id) -> String {
    format!(
        "the record of {id:?} in Redis cannot be read: its key has a value that is not onceward's; remove it if nothing needs it, or use another prefix (`?prefix=…`)"
    )
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
