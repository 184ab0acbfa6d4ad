//! The record in every group of writes: the number of the group and what must survive a restart.
//!
//! It is the last item of its group in the journal and the only row of the table `groups`, so the same
//! bytes tell the journal check (before fjall opens) and the store (afterwards) which group was last.
//!
//! ```text
//! bytes 0..16   nonce of the folder: identifies a record of this folder
//! bytes 16..24  sequence of the group, from 1 without gaps
//! bytes 24..32  the highest version given so far
//! bytes 32..40  no waiting row is due before this, in microseconds (see `due_scan.rs`)
//! bytes 40..48  no other row is
//! bytes 48..56  of no group before this one anything is left in the table `held` (see `held_rows.rs`)
//! bytes 56..64  fjall's own sequence number just before the group was handed to it
//! bytes 64..68  CRC-32 of bytes 0..64; all numbers little endian
//! ```

use super::folder::{NONCE_BYTES, Nonce};

/// The key of the one row in the table `groups`.
pub(crate) const RECORD_KEY: &[u8] = b"group";
pub(crate) const RECORD_BYTES: usize = 68;
const CHECKED_BYTES: usize = 64;

/// How far fjall's number may be ahead of the one noted here: it also counts its own flushes.
const NUMBER_AHEAD_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) nonce: Nonce,
    pub(crate) sequence: u64,
    pub(crate) version_max: u64,
    /// By list of the due index.
    pub(crate) floors_us: [u64; 2],
    pub(crate) held_from: u64,
    pub(crate) engine_number: u64,
}

impl GroupRecord {
    /// The record of a folder without any group.
    pub(crate) fn before_the_first(nonce: Nonce) -> Self {
        Self { nonce, sequence: 0, version_max: 0, floors_us: [0; 2], held_from: 0, engine_number: 0 }
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let [waiting_us, rest_us] = self.floors_us;
        let numbers =
            [self.sequence, self.version_max, waiting_us, rest_us, self.held_from, self.engine_number];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        for (place, number) in bytes[NONCE_BYTES..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if these are not the bytes of a record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        if bytes[CHECKED_BYTES..] != crc32fast::hash(&bytes[..CHECKED_BYTES]).to_le_bytes() {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Some(Self {
            nonce: std::array::from_fn(|i| bytes[i]),
            sequence: number(16),
            version_max: number(24),
            floors_us: [number(32), number(40)],
            held_from: number(48),
            engine_number: number(56),
        })
    }

    /// Whether fjall's number at the head of the group, which its own checksum leaves out, can be true.
    pub(crate) fn fits_engine_number(&self, number: u64) -> bool {
        number.checked_sub(self.engine_number).is_some_and(|ahead| ahead <= NUMBER_AHEAD_MAX)
    }
}

#[cfg(test)]
#[path = "group_record_test.rs"]
mod tests;
