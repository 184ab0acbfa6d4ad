//! One try of a client, as the flaky server saw it.

use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;

/// A request that arrived, or a connection on which none did.
#[derive(Clone, Debug)]
pub(super) struct Try {
    /// When its last byte was there.
    pub(super) at: Instant,
    /// When it was answered, or cut off.
    pub(super) ended: Instant,
    /// What was sent; none where the connection was reset before it was read.
    pub(super) sent: Option<Sent>,
    /// What it got, in a few words.
    pub(super) got: String,
    /// The status that it got.
    pub(super) status: Option<u16>,
    /// When it was told to come again, if that was said as a date.
    pub(super) come_again_at: Option<Instant>,
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) target: String,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Sent {
    /// The key: the lines of this field, or the text at this place of the body.
    pub(super) fn key(&self, field: &str, pointer: Option<&str>) -> Option<String> {
        if let Some(pointer) = pointer {
            let json: Value = serde_json::from_slice(&self.body).ok()?;
            return json.pointer(pointer)?.as_str().map(str::to_owned);
        }
        let lines = self.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(field));
        let lines: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    /// How another try of the same request differs from it in what a server compares.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let media = |sent: &Self| sent.fields.iter().find(|(name, _)| name == "content-type").cloned();
        if self.method != other.method {
            return Some(format!("the method became {}", other.method));
        }
        if self.target != other.target {
            return Some(format!("the path became {}", other.target));
        }
        if media(self) != media(other) {
            return Some("Content-Type changed".to_owned());
        }
        if self.body == other.body {
            return None;
        }
        let at = self.body.iter().zip(&other.body).take_while(|(one, other)| one == other).count();
        Some(format!("the bodies differ from byte {at} on"))
    }
}
