//! The byte format of a stored row; its key is the bytes of its id.
//!
//! ```text
//! byte 0        layout number of the row: 2
//! byte 1        state: 0 waiting, 1 held, 2 done, 3 unknown, 4 dead, 5 gone;
//!               128 is added if it ends with its writer
//! bytes 2..10   version, little endian
//! bytes 10..18  due time in microseconds since 1970, little endian; all ones for never
//! bytes 18..26  version of the first write since the id was last absent, little endian
//! bytes 26..30  CRC-32 over the id, bytes 0..26 and the receipt
//! then          the encoded receipt, opaque here
//! ```

use bytes::Bytes;
use onceward::{Age, Due, Error, ErrorKind, Found, Id, Record, Result, State, Version};

use crate::kit;

/// The due time of a row that never falls due.
pub(crate) const NEVER_US: u64 = u64::MAX;

const LAYOUT: u8 = 2;
const HEAD_BYTES: usize = 30;
const CHECKED_BYTES: usize = 26;
const ENDS_WITH_WRITER: u8 = 128;

/// A record as it is stored: in the table `held` while it is held, and in `receipts` otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) version: u64,
    pub(crate) state: State,
    pub(crate) due_us: u64,
    /// Versions come from the clock, so this one says when the record was created.
    pub(crate) created: u64,
    /// Only a held row does: other due times are not about a process.
    pub(crate) ends_with_writer: bool,
    pub(crate) bytes: Bytes,
}

/// The list of the due index that a row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DueList {
    Waiting,
    Rest,
}

/// All of them, by their numbers.
pub(crate) const DUE_LISTS: [DueList; 2] = [DueList::Waiting, DueList::Rest];

/// The time and version when this process opened the folder. No other process has it open, so a row that ends with
/// its writer and is not newer than this has lost its owner and is due, whatever its due time says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedAt {
    pub(crate) at_us: u64,
    pub(crate) version_max: u64,
}

impl Row {
    /// The row of a record that is written now; `created` is that of the row it replaces.
    pub(crate) fn new(record: &Record, version: u64, created: Option<u64>, now_us: u64) -> Self {
        // A due time so far away that it does not fit is the last one that does.
        let due_us = kit::due_us(now_us, record.due_in).map_or(NEVER_US, |due_us| due_us.min(NEVER_US - 1));
        Self {
            version,
            state: record.state,
            due_us,
            created: created.unwrap_or(version),
            ends_with_writer: record.ends_with_writer && record.state == State::Held,
            bytes: record.bytes.clone(),
        }
    }

    /// Writes it into `row`, in place of what was there.
    pub(crate) fn encode(&self, id: &Id, row: &mut Vec<u8>) {
        row.clear();
        row.push(LAYOUT);
        row.push(state_byte(self.state) | if self.ends_with_writer { ENDS_WITH_WRITER } else { 0 });
        row.extend(self.version.to_le_bytes());
        row.extend(self.due_us.to_le_bytes());
        row.extend(self.created.to_le_bytes());
        row.extend(checksum(id, row, &self.bytes).to_le_bytes());
        row.extend_from_slice(&self.bytes);
    }

    pub(crate) fn decode(id: &Id, row: &[u8]) -> Result<Self> {
        let damaged = |what| {
            let detail =
                format!("the stored receipt of {id:?} is damaged ({what}); restore the folder from a copy");
            Err(Error::new(ErrorKind::Damaged, detail))
        };
        let Some((head, bytes)) = row.split_at_checked(HEAD_BYTES) else {
            return damaged("too short");
        };
        if number(&head[CHECKED_BYTES..]) != u64::from(checksum(id, &head[..CHECKED_BYTES], bytes)) {
            return damaged("its checksum does not match");
        }
        if head[0] != LAYOUT {
            let detail = format!(
                "the stored receipt of {id:?} has layout {}, this version reads layout {LAYOUT}; use the version that \
                 wrote it",
                head[0]
            );
            return Err(Error::new(ErrorKind::Damaged, detail));
        }
        let Some(state) = state_of(head[1] & !ENDS_WITH_WRITER) else {
            return damaged("its state is unknown");
        };
        Ok(Self {
            version: number(&head[2..10]),
            state,
            due_us: number(&head[10..18]),
            created: number(&head[18..CHECKED_BYTES]),
            ends_with_writer: head[1] & ENDS_WITH_WRITER != 0,
            bytes: Bytes::copy_from_slice(bytes),
        })
    }

    /// Whether its process ended before the folder was opened.
    pub(crate) fn lost_its_owner(&self, opened: OpenedAt) -> bool {
        self.ends_with_writer && self.version <= opened.version_max
    }

    /// When it falls due: without its owner, at the latest when the folder was opened.
    pub(crate) fn effective_due_us(&self, opened: OpenedAt) -> u64 {
        if self.lost_its_owner(opened) { self.due_us.min(opened.at_us) } else { self.due_us }
    }

    pub(crate) fn found(&self, now_us: u64, opened: OpenedAt) -> Found {
        let due = if self.lost_its_owner(opened) {
            // Over even if the clock was set back since.
            Due::Over(std::time::Duration::from_micros(now_us.saturating_sub(self.effective_due_us(opened))))
        } else {
            Due::between(now_us, (self.due_us != NEVER_US).then_some(self.due_us))
        };
        Found::new(
            Version(self.version),
            self.state,
            due,
            Age::between(now_us, self.created, self.version),
            self.bytes.clone(),
        )
    }

    /// Where the due index has this row; leases are not in it (see `held_rows.rs`).
    pub(crate) fn listed(&self) -> Option<(DueList, u64)> {
        let list = match self.state {
            State::Held => return None,
            State::Waiting => DueList::Waiting,
            State::Done | State::Unknown | State::Dead | State::Gone => DueList::Rest,
        };
        (self.due_us != NEVER_US).then_some((list, self.due_us))
    }

    /// Whether it is in the index of states (see `index.rs`): the states that operators query and no other list has.
    pub(crate) fn indexed_state(&self) -> Option<State> {
        let is_indexed = match self.state {
            State::Unknown | State::Dead => true,
            State::Waiting => self.due_us == NEVER_US,
            State::Held | State::Done | State::Gone => false,
        };
        is_indexed.then_some(self.state)
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

pub(crate) fn state_byte(state: State) -> u8 {
    match state {
        State::Waiting => 0,
        State::Held => 1,
        State::Done => 2,
        State::Unknown => 3,
        State::Dead => 4,
        State::Gone => 5,
    }
}

fn state_of(byte: u8) -> Option<State> {
    State::ALL.into_iter().find(|state| state_byte(*state) == byte)
}

#[cfg(test)]
#[path = "row_test.rs"]
mod tests;
