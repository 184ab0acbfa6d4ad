//! The bytes of an entry in a front, and its seal; all of them are described here and nowhere else.
//!
//! ```text
//! success  1 · version 8 · ends 8 · due 8 · receipt … · seal 32
//! hint     2 · lease ends 8
//! ```
//!
//! Times are microseconds of the store's clock, little endian; a due time of all ones is never. The seal is a keyed
//! BLAKE3 over the store's identity, the id and everything before it. A hint has none: it is believed for the length of
//! a short wait only.

use bytes::{BufMut, Bytes, BytesMut};

use super::{FrontKey, StoreIdentity};
use crate::engine::sealed::{self, seal_status};
use crate::id::Id;
use crate::receipt::Status;
use crate::store::{Age, Due, Found, State, Version};

const SUCCESS: u8 = 1;
const HINT: u8 = 2;
const HEAD_BYTES: usize = 1 + 3 * 8;
const SEAL_BYTES: usize = blake3::OUT_LEN;
/// A due time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// A recorded success, with the end of its time in the front and of its retention by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    /// The version of its record.
    pub version: Version,
    /// When it ends in the front.
    pub ends_us: u64,
    /// When its retention ends.
    pub due_us: u64,
    /// The recorded status.
    pub status: Status,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Sealed by somebody who knows the store's key.
    Success(Success),
    /// Somebody says that the intent is being run, under a lease until then.
    Hint {
        /// When.
        lease_ends_us: u64,
    },
    /// Its seal does not fit, or it is nothing that was ever written here.
    Foreign,
}

impl StoreIdentity {
    /// The name of the entry of an id.
    #[doc(hidden)]
    pub fn key_of(&self, id: &Id) -> FrontKey {
        let digest = self.digest(b"name", id, &[]);
        let (name, _) = digest.as_bytes().split_first_chunk().expect("a digest is longer than a name");
        FrontKey(*name)
    }

    fn digest(&self, purpose: &[u8], id: &Id, bytes: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.seal_key);
        hasher.update(purpose);
        for part in [&self.name[..], id.as_bytes(), bytes] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }

    /// Writes a success and seals it.
    #[doc(hidden)]
    pub fn seal(&self, id: &Id, success: &Success) -> Bytes {
        let receipt = seal_status(&success.status);
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + receipt.len() + SEAL_BYTES);
        bytes.put_u8(SUCCESS);
        bytes.put_u64_le(success.version.0);
        bytes.put_u64_le(success.ends_us);
        bytes.put_u64_le(success.due_us);
        bytes.put_slice(&receipt);
        let seal = self.digest(b"seal", id, &bytes);
        bytes.put_slice(seal.as_bytes());
        bytes.freeze()
    }

    /// Reads an entry; a success only if it was sealed for this id in this store.
    #[doc(hidden)]
    pub fn open(&self, id: &Id, bytes: &Bytes) -> Entry {
        match bytes.first() {
            Some(&HINT) if bytes.len() == 9 => Entry::Hint { lease_ends_us: u64_at(bytes, 1) },
            Some(&SUCCESS) => self.open_success(id, bytes).map_or(Entry::Foreign, Entry::Success),
            _ => Entry::Foreign,
        }
    }

    fn open_success(&self, id: &Id, bytes: &Bytes) -> Option<Success> {
        let sealed = bytes.len().checked_sub(SEAL_BYTES).filter(|sealed| *sealed > HEAD_BYTES)?;
        let seal: [u8; SEAL_BYTES] = bytes[sealed..].try_into().ok()?;
        // The comparison takes the same time wherever they differ.
        if self.digest(b"seal", id, &bytes[..sealed]) != blake3::Hash::from_bytes(seal) {
            return None;
        }
        let version = Version(u64_at(bytes, 1));
        let receipt = bytes.slice(HEAD_BYTES..sealed);
        let found = Found::new(version, State::Done, Due::Never, Age::default(), receipt);
        let status = sealed::open(&found).ok()?.status;
        Some(Success { version, ends_us: u64_at(bytes, 9), due_us: u64_at(bytes, 17), status })
    }
}

/// A hint that a lease ends at this time.
pub fn hint(lease_ends_us: u64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9);
    bytes.put_u8(HINT);
    bytes.put_u64_le(lease_ends_us);
    bytes.freeze()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "entry_test.rs"]
mod tests;
