//! The record that every group of writes carries: which group it is and what must outlive a restart.
//!
//! It is the last item of its group in the journal and the only row of the table `groups`, so the same
//! bytes tell the journal check (before fjall opens) and the store (afterwards) how far the folder got.
//!
//! ```text
//! bytes 0..8    sequence of the group, from 1 without gaps
//! bytes 8..16   the highest version given so far
//! bytes 16..24  no row is due before this, in microseconds (see `due.rs`)
//! bytes 24..32  no group before this one left a row held that still is (see `held.rs`)
//! bytes 32..40  fjall's own sequence number just before the group was handed to it
//! bytes 40..44  CRC-32 of bytes 0..40; all numbers little endian
//! ```

/// The key of the one row in the table `groups`.
pub(crate) const RECORD_KEY: &[u8] = b"group";
pub(crate) const RECORD_BYTES: usize = 44;
const CHECKED_BYTES: usize = 40;

/// How far fjall's number may be ahead of the one noted here: it also counts its own flushes.
const NUMBER_AHEAD_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) sequence: u64,
    pub(crate) version_max: u64,
    pub(crate) floor_us: u64,
    pub(crate) held_from: u64,
    pub(crate) engine_number: u64,
}

impl GroupRecord {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let numbers = [self.sequence, self.version_max, self.floor_us, self.held_from, self.engine_number];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
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
            sequence: number(0),
            version_max: number(8),
            floor_us: number(16),
            held_from: number(24),
            engine_number: number(32),
        })
    }

    /// Whether fjall's number at the head of the group, which its own checksum leaves out, can be true.
    pub(crate) fn fits_engine_number(&self, number: u64) -> bool {
        number.checked_sub(self.engine_number).is_some_and(|ahead| ahead <= NUMBER_AHEAD_MAX)
    }
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
