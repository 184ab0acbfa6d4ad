//! Every byte that a saga stores: what a step ended with, the list of a step that loops, and what a saga was started
//! with. All of it is inside receipts.
//!
//! ```text
//! outcome of a step or a saga   1 byte: s(ucceeded), r(efused), f(ailed), u(ndone); then the value, or why
//! list of a step that loops     for each item: 4 bytes length, big endian; the item
//! input of a saga               1 byte: 1; 4 bytes version, big endian; 32 bytes digest of the definition; the input
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use onceward::{Error, ErrorKind, Outcome, Result, Verdict};

/// Most items of a step that loops: each has a receipt of its own.
pub const ITEMS_MAX: usize = 1_000;

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 1 + 4 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 32;

/// The end of a step or a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It did what was asked; this is its value.
    Succeeded(Bytes),
    /// Certainly nothing happened, for this reason.
    Refused(String),
    /// It ended without what was asked, for this reason; something may have happened.
    Failed(String),
    /// Of a saga: what had happened was undone, for this reason.
    Undone(String),
}

impl Ended {
    /// Its name in tables and answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Succeeded(_) => "succeeded",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Undone(_) => "undone",
        }
    }

    /// Why it did not succeed.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Succeeded(_) => None,
            Self::Refused(reason) | Self::Failed(reason) | Self::Undone(reason) => Some(reason),
        }
    }

    /// As an outcome of at most this many bytes. A reason is cut. A value is never cut: one that does not fit is a
    /// failure, because its effect has happened and cannot be recorded.
    pub(crate) fn to_outcome(&self, bytes_max: usize) -> Outcome {
        let (kind, rest): (u8, &[u8]) = match self {
            Self::Succeeded(value) if 1 + value.len() > bytes_max => {
                let reason = format!(
                    "the step returned {} bytes and at most {} can be recorded; return less, or where it is",
                    value.len(),
                    bytes_max.saturating_sub(1)
                );
                return Self::Failed(reason).to_outcome(bytes_max);
            }
            Self::Succeeded(value) => (b's', value),
            Self::Refused(reason) => (b'r', reason.as_bytes()),
            Self::Failed(reason) => (b'f', reason.as_bytes()),
            Self::Undone(reason) => (b'u', reason.as_bytes()),
        };
        let mut body = BytesMut::with_capacity(1 + rest.len());
        body.put_u8(kind);
        body.put_slice(rest);
        if kind == b's' {
            return Outcome::succeeded(body.freeze());
        }
        body.truncate(bytes_max.max(1));
        Outcome::failed(body.freeze())
    }

    /// Reads an outcome. `None` if it is not one of a saga.
    pub(crate) fn of_outcome(outcome: &Outcome) -> Option<Self> {
        let body = outcome.body();
        let reason = || String::from_utf8_lossy(&body[1..]).into_owned();
        match (body.first()?, outcome.verdict()) {
            (b's', Verdict::Succeeded) => Some(Self::Succeeded(body.slice(1..))),
            (b'r', Verdict::Failed) => Some(Self::Refused(reason())),
            (b'f', Verdict::Failed) => Some(Self::Failed(reason())),
            (b'u', Verdict::Failed) => Some(Self::Undone(reason())),
            _ => None,
        }
    }
}

/// What a saga was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) version: u32,
    pub(crate) digest: [u8; DIGEST_BYTES],
    pub(crate) input: Bytes,
}

impl Envelope {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + self.input.len());
        bytes.put_u8(FORMAT);
        bytes.put_u32(self.version);
        bytes.put_slice(&self.digest);
        bytes.put_slice(&self.input);
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self> {
        let damaged = || Error::new(ErrorKind::Damaged, "the input of a saga cannot be read");
        if bytes.len() < HEAD_BYTES || bytes[0] != FORMAT {
            return Err(damaged());
        }
        let version = u32::from_be_bytes(bytes[1..5].try_into().map_err(|_| damaged())?);
        let digest = bytes[5..HEAD_BYTES].try_into().map_err(|_| damaged())?;
        Ok(Self { version, digest, input: bytes.slice(HEAD_BYTES..) })
    }
}

/// The items of a step that loops, as the value of their list.
pub(crate) fn encode_list(items: &[Bytes]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(items.iter().map(|item| 4 + item.len()).sum());
    for item in items {
        bytes.put_u32(u32::try_from(item.len()).unwrap_or(u32::MAX));
        bytes.put_slice(item);
    }
    bytes.freeze()
}

pub(crate) fn decode_list(bytes: &Bytes) -> Result<Vec<Bytes>> {
    let damaged = || Error::new(ErrorKind::Damaged, "the list of a step cannot be read");
    let (mut items, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let head: [u8; 4] =
            bytes.get(at..at + 4).and_then(|head| head.try_into().ok()).ok_or_else(damaged)?;
        let end = usize::try_from(u32::from_be_bytes(head)).map_err(|_| damaged())? + at + 4;
        if end > bytes.len() || items.len() == ITEMS_MAX {
            return Err(damaged());
        }
        items.push(bytes.slice(at + 4..end));
        at = end;
    }
    Ok(items)
}

#[cfg(test)]
#[path = "result_test.rs"]
mod tests;
