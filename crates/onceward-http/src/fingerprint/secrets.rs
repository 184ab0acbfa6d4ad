//! The secrets that key the fingerprints, so that a body cannot be guessed from a stored receipt.

use std::fmt;
use std::iter;

/// Length of a secret: the key of BLAKE3.
pub const SECRET_BYTES: usize = 32;

/// The current secret, and the older ones that receipts may still be keyed with. To rotate, put the new
/// one in front and keep the old one for as long as receipts are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    current: [u8; SECRET_BYTES],
    older: Vec<[u8; SECRET_BYTES]>,
}

impl Secrets {
    /// One secret, never rotated so far.
    pub fn new(current: [u8; SECRET_BYTES]) -> Self {
        Self { current, older: Vec::new() }
    }

    /// Adds older secrets, under which stored fingerprints are still recognised. One that is there
    /// already is not added again: it would only cost another digest.
    pub fn with_older(mut self, older: impl IntoIterator<Item = [u8; SECRET_BYTES]>) -> Self {
        for secret in older {
            if secret != self.current && !self.older.contains(&secret) {
                self.older.push(secret);
            }
        }
        self
    }

    /// The secret that new fingerprints are keyed with.
    pub fn current(&self) -> &[u8; SECRET_BYTES] {
        &self.current
    }

    /// The secrets that only stored fingerprints are keyed with.
    pub fn older(&self) -> &[[u8; SECRET_BYTES]] {
        &self.older
    }

    /// All of them, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &[u8; SECRET_BYTES]> {
        iter::once(&self.current).chain(&self.older)
    }
}

impl From<[u8; SECRET_BYTES]> for Secrets {
    fn from(current: [u8; SECRET_BYTES]) -> Self {
        Self::new(current)
    }
}

/// Shows only the number of secrets: a secret must not be logged.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets(1 current, {} older)", self.older.len())
    }
}
