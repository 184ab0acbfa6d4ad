//! Entity tags: the values of `ETag`, `If-Match` and `If-None-Match` (RFC 9110, section 8.8.3).

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;

/// The identifier of one version of a resource, as in `ETag: "7"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntityTag {
    weak: bool,
    opaque: String,
}

/// Why a text is not an entity tag, or not a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedTag(pub(super) String);

impl fmt::Display for MalformedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedTag {}

impl EntityTag {
    /// The longest tag in bytes, without its quotes. Services behind the gateway choose their tags themselves.
    pub const BYTES_MAX: usize = 1024;

    /// A strong tag: two versions that have it are the same, byte for byte. The text is what is between the quotes:
    /// printable ASCII without a quote or a space.
    pub fn strong(opaque: &str) -> Result<Self, MalformedTag> {
        Self::new(false, opaque)
    }

    /// A weak tag: two versions that have it mean the same. It never satisfies `If-Match`.
    pub fn weak(opaque: &str) -> Result<Self, MalformedTag> {
        Self::new(true, opaque)
    }

    fn new(weak: bool, opaque: &str) -> Result<Self, MalformedTag> {
        if opaque.len() > Self::BYTES_MAX {
            let (bytes, max) = (opaque.len(), Self::BYTES_MAX);
            return Err(MalformedTag(format!("an entity tag of {bytes} bytes, {max} are the most")));
        }
        if !opaque.bytes().all(is_tag_byte) {
            return Err(MalformedTag(
                "an entity tag with a quote, a space or a control character in it".into(),
            ));
        }
        Ok(Self { weak, opaque: opaque.to_owned() })
    }

    /// Returns the text between the quotes.
    pub fn opaque(&self) -> &str {
        &self.opaque
    }

    /// Returns whether it is a weak tag.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// The strong comparison, of `If-Match`: both are strong, and the same.
    pub fn is_same_strong(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// The weak comparison, of `If-None-Match`: the same, whether weak or not.
    pub fn is_same_weak(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }

    /// The value of an `ETag` field.
    pub fn header_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.to_string().as_bytes()).expect("its bytes were checked")
    }

    /// Takes a tag from the beginning of a text, and returns the rest behind it.
    pub(super) fn take(text: &str) -> Result<(Self, &str), MalformedTag> {
        let (weak, rest) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let quoted =
            rest.strip_prefix('"').ok_or_else(|| MalformedTag("an entity tag without quotes".into()))?;
        let (opaque, rest) = quoted
            .split_once('"')
            .ok_or_else(|| MalformedTag("an entity tag without its closing quote".into()))?;
        Ok((Self::new(weak, opaque)?, rest))
    }
}

/// `etagc` of RFC 9110; the bytes from 0x80 on are part of characters that are not ASCII.
fn is_tag_byte(byte: u8) -> bool {
    byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

impl FromStr for EntityTag {
    type Err = MalformedTag;

    fn from_str(text: &str) -> Result<Self, MalformedTag> {
        match Self::take(text)? {
            (tag, "") => Ok(tag),
            _ => Err(MalformedTag("something behind an entity tag".into())),
        }
    }
}
