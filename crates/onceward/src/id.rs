//! The identity of one intent: scope, operation, key. Parsed once at the edge, bounded, and from
//! there on one immutable value that is cheap to clone, hash and compare.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use crate::error::{Error, Result};

/// Longest scope, in bytes. A scope is a tenant name or a hash of a credential.
pub const SCOPE_BYTES_MAX: usize = 255;
/// Longest operation, in bytes. A method and a route, with space for nested steps; all three parts
/// together stay below the index limits of every database we write to.
pub const OPERATION_BYTES_MAX: usize = 512;
/// Longest key, in bytes: what the HTTP profile promises to clients.
pub const KEY_BYTES_MAX: usize = 255;

const HEAD_BYTES: usize = 3;
/// What is checked at once: the text of an id is filled up to whole blocks.
const BLOCK_BYTES: usize = 16;
const ID_BYTES_MAX: usize =
    HEAD_BYTES + (SCOPE_BYTES_MAX + OPERATION_BYTES_MAX + KEY_BYTES_MAX).next_multiple_of(BLOCK_BYTES);
/// Nearly all ids are this short; they need not pay for clearing a kilobyte.
const ID_BYTES_USUAL: usize = HEAD_BYTES + 10 * BLOCK_BYTES;

/// Separates an operation from the steps inside it: `POST /charges#email`. It cannot occur in a path
/// or a route, and [`Id::new`] refuses it, so no operation can be mistaken for a step.
const STEP_MARK: u8 = b'#';
/// The bit of an id's hash that says whether it is a step; none that a table looks at first.
const STEP_BIT: u64 = 1 << 47;

/// The identity of one intent: scope (who asks), operation (what for) and idempotency key.
///
/// ```
/// let id = onceward::Id::new("tenant-7", "POST /charges", "order-81")?;
/// assert_eq!(id.key(), "order-81");
/// # Ok::<(), onceward::Error>(())
/// ```
///
/// Inside it is one length-prefixed byte string, so that no choice of parts can run into another:
///
/// ```text
/// byte 0        length of the scope
/// bytes 1..3    length of the operation, big endian
/// then          scope, operation, key
/// ```
#[derive(Clone)]
pub struct Id {
    bytes: Arc<[u8]>,
    /// Of the bytes, with another seed in each process. An id is looked up in half a dozen tables on its way
    /// through the engine; this way it is read once. One bit says whether it is a step ([`STEP_BIT`]).
    hash: u64,
}

impl Id {
    /// Checks the three parts and joins them. Each is 1 or more printable ASCII characters and has a
    /// bound of its own; an operation has no `#`.
    pub fn new(scope: &str, operation: &str, key: &str) -> Result<Self> {
        let id = Self::join(scope, operation, key)?;
        if id.is_step() {
            return Err(Error::invalid("operation contains '#', which marks steps; choose another name"));
        }
        Ok(id)
    }

    /// The id of a step inside this intent: same scope, same key, the operation extended.
    pub fn step(&self, name: &str) -> Result<Self> {
        if name.as_bytes().contains(&STEP_MARK) {
            return Err(Error::invalid("step name contains '#', which marks steps; choose another name"));
        }
        check_length("step name", name, OPERATION_BYTES_MAX)?;
        check_text("step name", name)?;
        Self::join(self.scope(), &format!("{}#{name}", self.operation()), self.key())
    }

    /// Returns whether it is a step inside another intent.
    pub fn is_step(&self) -> bool {
        self.hash & STEP_BIT != 0
    }

    /// The intent that this is a step of, if it is one.
    pub fn parent(&self) -> Option<Self> {
        if !self.is_step() {
            return None;
        }
        let (scope, operation, key) = self.parts();
        let (parent, _) = operation.rsplit_once(char::from(STEP_MARK))?;
        // A part of a checked operation is checked, unless it is empty, which `Id::step` never makes.
        Self::from_columns(scope, parent, key).ok()
    }

    /// Reads the form that [`Id::as_bytes`] gives. Used by stores whose own key is that form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (scope, operation, key) = split(bytes).ok_or_else(|| Error::invalid("not the bytes of an id"))?;
        Self::from_columns(scope, operation, key)
    }

    /// Joins parts as they are stored in a table, steps included. For stores that keep the parts in columns.
    pub fn from_columns(scope: &str, operation: &str, key: &str) -> Result<Self> {
        Self::join(scope, operation, key)
    }

    /// The length-prefixed form: unique for the id, stable across versions.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The caller's scope.
    pub fn scope(&self) -> &str {
        self.parts().0
    }

    /// The operation.
    pub fn operation(&self) -> &str {
        self.parts().1
    }

    /// The caller's token for this one intent.
    pub fn key(&self) -> &str {
        self.parts().2
    }

    /// For tables of our own, which need no hash of this hash.
    pub(crate) fn seeded_hash(&self) -> u64 {
        self.hash
    }

    fn parts(&self) -> (&str, &str, &str) {
        split(&self.bytes).expect("an Id is only ever made from checked parts")
    }

    /// A step if its operation has the mark of one.
    fn join(scope: &str, operation: &str, key: &str) -> Result<Self> {
        check_length("scope", scope, SCOPE_BYTES_MAX)?;
        check_length("operation", operation, OPERATION_BYTES_MAX)?;
        check_length("key", key, KEY_BYTES_MAX)?;
        // On the stack first: the Arc is then the only allocation. Filled with spaces, which are printable,
        // so that the text can be checked below in one pass of whole blocks: every request comes through here.
        let (mut small, mut large);
        let len = HEAD_BYTES + scope.len() + operation.len() + key.len();
        let buffer: &mut [u8] = if len <= ID_BYTES_USUAL {
            small = [b' '; ID_BYTES_USUAL];
            &mut small
        } else {
            large = [b' '; ID_BYTES_MAX];
            &mut large
        };
        buffer[0] = u8::try_from(scope.len()).expect("checked above");
        buffer[1..3].copy_from_slice(&u16::try_from(operation.len()).expect("checked above").to_be_bytes());
        let mut end = HEAD_BYTES;
        for part in [scope, operation, key] {
            buffer[end..end + part.len()].copy_from_slice(part.as_bytes());
            end += part.len();
        }
        let (blocks, _) = buffer[HEAD_BYTES..].as_chunks::<BLOCK_BYTES>();
        // Without an early end, the bytes of a block are compared at once.
        let (mut all_printable, mut has_mark) = (true, false);
        for block in &blocks[..(end - HEAD_BYTES).div_ceil(BLOCK_BYTES)] {
            all_printable &= block.iter().fold(true, |all, byte| all & is_printable(*byte));
            has_mark |= block.iter().fold(false, |any, byte| any | is_mark(*byte));
        }
        if !all_printable {
            check_text("scope", scope)?;
            check_text("operation", operation)?;
            check_text("key", key)?;
        }
        // A scope and a key may have the mark, too.
        let is_step = has_mark && operation.as_bytes().contains(&STEP_MARK);
        let bytes = &buffer[..end];
        let hash = hash_of(bytes) & !STEP_BIT | if is_step { STEP_BIT } else { 0 };
        Ok(Self { hash, bytes: Arc::from(bytes) })
    }

    /// The key as it may stand in a log: twelve digits of its hash, enough to find the same one again, not enough to use
    /// it.
    pub fn key_hash(&self) -> String {
        blake3::hash(self.key().as_bytes()).to_hex()[..12].to_owned()
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    static SEED: LazyLock<hashbrown::DefaultHashBuilder> = LazyLock::new(Default::default);
    SEED.hash_one(bytes)
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Eq for Id {}

impl std::hash::Hash for Id {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// By the bytes: the order must not depend on the process.
impl Ord for Id {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn check_length(name: &'static str, part: &str, bytes_max: usize) -> Result<()> {
    if part.is_empty() {
        return Err(Error::invalid(format!("{name} is empty; it needs at least one character")));
    }
    if part.len() > bytes_max {
        return Err(Error::invalid(format!("{name} is {} bytes long; at most {bytes_max} fit", part.len())));
    }
    Ok(())
}

fn check_text(name: &'static str, part: &str) -> Result<()> {
    match part.bytes().find(|byte| !is_printable(*byte)) {
        None => Ok(()),
        Some(bad) => {
            Err(Error::invalid(format!("{name} contains byte 0x{bad:02x}; only printable ASCII is allowed")))
        }
    }
}

fn is_printable(byte: u8) -> bool {
    (0x20..=0x7e).contains(&byte)
}

fn is_mark(byte: u8) -> bool {
    byte == STEP_MARK
}

fn split(bytes: &[u8]) -> Option<(&str, &str, &str)> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (scope, rest) = rest.split_at_checked(usize::from(head[0]))?;
    let (operation, key) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[1], head[2]])))?;
    let text = |part| std::str::from_utf8(part).ok();
    Some((text(scope)?, text(operation)?, text(key)?))
}

/// Names the intent without giving the key away: logs may carry this, and no part of the key.
impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scope, operation, _) = self.parts();
        write!(f, "{scope}/{operation}/{}", self.key_hash())
    }
}

#[cfg(test)]
#[path = "id_test.rs"]
mod tests;
