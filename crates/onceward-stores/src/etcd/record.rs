//! A record as it is stored; see `mod.rs` for its bytes. Its version is etcd's revision, and not part of it.

use bytes::Bytes;
use onceward::{Age, Due, Error, ErrorKind, Found, Id, Record, Result, State, Version};

use super::keys::NEVER;
use crate::kit::state_letters;

const FORMAT: &[u8; 3] = b"oe1";
/// Bytes before the receipt.
const HEAD_BYTES: usize = 28;

/// What a record says besides the receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: State,
    pub(super) created_us: u64,
    pub(super) updated_us: u64,
    /// [`NEVER`] for never.
    pub(super) due_us: u64,
}

pub(super) fn encoded(head: &Head, record: &Record) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD_BYTES + record.bytes.len());
    value.extend_from_slice(FORMAT);
    value.push(state_letters::letter(head.state));
    for number in [head.created_us, head.updated_us, head.due_us] {
        value.extend_from_slice(&number.to_be_bytes());
    }
    value.extend_from_slice(&record.bytes);
    value
}

/// Reads the head of a record.
pub(super) fn head(id: &Id, value: &[u8]) -> Result<Head> {
    split(value).ok_or_else(|| unreadable(id, value))
}

fn split(value: &[u8]) -> Option<Head> {
    let (format, rest) = value.split_first_chunk::<3>()?;
    let (&[letter], rest) = rest.split_first_chunk::<1>()?;
    let (numbers, _) = rest.split_first_chunk::<24>()?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let numbers: &[[u8; 8]; 3] = numbers.try_into().ok()?;
    let [created_us, updated_us, due_us] = numbers.map(u64::from_be_bytes);
    let state = state_letters::state(letter).filter(|_| format == FORMAT)?;
    Some(Head { state, created_us, updated_us, due_us })
}

/// A record of this version, at this time.
pub(super) fn found(head: &Head, version: u64, value: Vec<u8>, now_us: u64) -> Found {
    let due = Due::between(now_us, (head.due_us != NEVER).then_some(head.due_us));
    let age = Age::between(now_us, head.created_us, head.updated_us);
    Found::new(Version(version), head.state, due, age, Bytes::from(value).slice(HEAD_BYTES..))
}

fn unreadable(id: &Id, value: &[u8]) -> Error {
    if value.starts_with(b"oe") {
        let detail = format!(
            "the record of {id:?} in etcd cannot be read: it is damaged, or was written by a later version; upgrade onceward, or restore it"
        );
        return Error::new(ErrorKind::Damaged, detail);
    }
    let detail = format!(
        "the record of {id:?} in etcd cannot be read: its key has a value that is not onceward's; remove it if nothing needs it, or use another prefix (`?prefix=…`)"
    );
    Error::new(ErrorKind::Foreign, detail)
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
