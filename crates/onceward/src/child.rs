//! Idempotency keys for downstream calls: derived from the intent, so that every retry of the intent sends the
//! same key downstream, and no two intents, scopes or labels ever share one.

use crate::error::Result;
use crate::id::Id;

/// Changing one byte of this changes every key ever derived: a downstream service would then run the
/// same call twice. A new scheme gets a new context next to this one.
const CONTEXT: &str = "onceward child key v1";

/// Derives the key for the downstream call `label` of the intent `id`.
///
/// The result looks like a UUID (version 8, RFC 9562), because that is the one form that every
/// service accepting keys accepts. It reveals nothing about the parent's key.
pub fn child_key(id: &Id, label: &str) -> Result<ChildKey> {
    // The label obeys the rules of a step name; its id is the domain separation.
    let step = id.step(label)?;
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(step.as_bytes());
    let mut bytes = [0u8; 16];
    hasher.finalize_xof().fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Ok(ChildKey(bytes))
}

/// A derived key; print it to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChildKey([u8; 16]);

impl std::fmt::Display for ChildKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "child_test.rs"]
mod tests;
