//! One stored row, byte for byte; its key is the bytes of its id.
//!
//! ```text
//! byte 0        layout number of the row: 1
//! byte 1        state: 0 held, 1 done, 2 unknown, 3 gone
//! bytes 2..10   version, little endian
//! bytes 10..18  due time in microseconds since 1970, little endian; all ones for never
//! bytes 18..22  CRC-32 over the id, bytes 0..18 and the receipt
//! then          the encoded receipt, opaque here
//! ```

use bytes::Bytes;
use onceward::{Due, Error, ErrorKind, Found, Id, Result, State, Version};

/// The due time of a row that never falls due.
pub(crate) const NEVER_US: u64 = u64::MAX;

const LAYOUT: u8 = 1;
const HEAD_BYTES: usize = 22;
const CHECKED_BYTES: usize = 18;

/// A record as it lies in the receipts table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) version: u64,
    pub(crate) state: State,
    pub(crate) due_us: u64,
    pub(crate) bytes: Bytes,
}

/// What was true when this process opened the folder. Nobody else can have it open, so a lease that
/// is not younger than this moment has lost its owner and is over, whatever its end says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) at_us: u64,
    pub(crate) version_max: u64,
}

impl Row {
    /// Writes it into `row`, in place of what was there.
    pub(crate) fn encode(&self, id: &Id, row: &mut Vec<u8>) {
        row.clear();
        row.push(LAYOUT);
        row.push(state_byte(self.state));
        row.extend(self.version.to_le_bytes());
        row.extend(self.due_us.to_le_bytes());
        row.extend(checksum(id, row, &self.bytes).to_le_bytes());
        row.extend_from_slice(&self.bytes);
    }

    pub(crate) fn decode(id: &Id, row: &[u8]) -> Result<Self> {
        let damaged = |what| {
            Err(Error::new(
                ErrorKind::Damaged,
                format!("the stored receipt of {id:?} is damaged ({what}); restore the folder from a copy"),
            ))
        };
        let Some((head, bytes)) = row.split_at_checked(HEAD_BYTES) else {
            return damaged("too short");
        };
        if number(&head[CHECKED_BYTES..]) != u64::from(checksum(id, &head[..CHECKED_BYTES], bytes)) {
            return damaged("its checksum does not match");
        }
        if head[0] != LAYOUT {
            return damaged("its layout is unknown");
        }
        let Some(state) = state_of(head[1]) else {
            return damaged("its state is unknown");
        };
        Ok(Self {
            version: number(&head[2..10]),
            state,
            due_us: number(&head[10..CHECKED_BYTES]),
            bytes: Bytes::copy_from_slice(bytes),
        })
    }

    /// Whether this is a lease from before the folder was opened.
    pub(crate) fn lost_its_owner(&self, opened: Opened) -> bool {
        self.state == State::Held && self.version <= opened.version_max
    }

    /// When it falls due, with ownerless leases due at the latest when the folder was opened.
    pub(crate) fn effective_due_us(&self, opened: Opened) -> u64 {
        if self.lost_its_owner(opened) { self.due_us.min(opened.at_us) } else { self.due_us }
    }

    pub(crate) fn found(&self, now_us: u64, opened: Opened) -> Found {
        let due = if self.lost_its_owner(opened) {
            // Over even if the clock was set back since.
            Due::Over(std::time::Duration::from_micros(now_us.saturating_sub(self.effective_due_us(opened))))
        } else {
            Due::between(now_us, (self.due_us != NEVER_US).then_some(self.due_us))
        };
        Found { version: Version(self.version), state: self.state, due, bytes: self.bytes.clone() }
    }

    /// Under which due time the due index has this row; leases are not in it (see `leases.rs`).
    pub(crate) fn indexed_due_us(&self) -> Option<u64> {
        (self.state != State::Held && self.due_us != NEVER_US).then_some(self.due_us)
    }
}

fn checksum(id: &Id, head: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}

/// Up to eight bytes, little endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn state_byte(state: State) -> u8 {
    match state {
        State::Held => 0,
        State::Done => 1,
        State::Unknown => 2,
        State::Gone => 3,
    }
}

fn state_of(byte: u8) -> Option<State> {
    [State::Held, State::Done, State::Unknown, State::Gone].get(usize::from(byte)).copied()
}

#[cfg(test)]
#[path = "row_test.rs"]
mod tests;
