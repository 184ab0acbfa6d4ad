//! What was asked, as a digest. The same key with another fingerprint is refused, never replayed.

use std::fmt;

/// A versioned digest of what was asked. Two fingerprints of different versions say nothing about
/// each other; see [`Ask::with_older_fingerprints`](crate::Ask::with_older_fingerprints) for how a caller bridges an upgrade.
///
/// How a request becomes canonical bytes is the edge's business; here they are only digested.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; Self::DIGEST_BYTES],
}

impl Fingerprint {
    /// Length of the digest.
    pub const DIGEST_BYTES: usize = 32;

    /// A digest that was made elsewhere. `version` names the rules by which it was made.
    pub fn new(version: u8, digest: [u8; Self::DIGEST_BYTES]) -> Self {
        Self { version, digest }
    }

    /// Digests `parts` under `secret`, each part length-prefixed so that moving a byte from one part
    /// to the next changes the result. Without the secret a body cannot be guessed from a receipt.
    pub fn keyed(version: u8, secret: &[u8; 32], parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self { version, digest: *hasher.finalize().as_bytes() }
    }

    /// Digests `bytes` without a secret: for callers whose receipts no other party can read.
    pub fn of(bytes: &[u8]) -> Self {
        Self { version: 0, digest: *blake3::hash(bytes).as_bytes() }
    }

    /// The rules by which the digest was made.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The digest itself.
    pub fn digest(&self) -> &[u8; Self::DIGEST_BYTES] {
        &self.digest
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = u32::from_be_bytes(self.digest[..4].try_into().expect("four bytes"));
        write!(f, "v{}:{shown:08x}…", self.version)
    }
}
