//! An event as it is kept in the input of its receipt until it is delivered.
//!
//! ```text
//! "onceward event 1\n"   then the length of the head (u32, little-endian), the head as JSON, and the raw body
//! ```

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

const FORMAT: &[u8] = b"onceward event 1\n";
/// The most bytes of a stored event in addition to its body: the head of a request is bounded by its server.
pub const HEAD_BYTES_MAX: usize = 128 << 10;

/// An event that is stored until it is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEvent {
    /// The method of its request.
    pub method: String,
    /// The path and the query of its request.
    pub target: String,
    /// The sender's id of the event, as a key.
    pub key: String,
    /// Its object: events of one object are delivered in order. `None`: it has no order.
    pub object: Option<String>,
    /// When it arrived, in microseconds since 1970. Grows within a process.
    pub arrived_us: u64,
    /// How often it was sent again under a new key by an operator.
    pub redrive: u32,
    /// The fields of its request.
    pub headers: HeaderMap,
    /// The raw body.
    pub body: Bytes,
}

#[derive(Serialize, Deserialize)]
struct Head {
    method: String,
    target: String,
    key: String,
    object: Option<String>,
    arrived_us: u64,
    #[serde(default)]
    redrive: u32,
    /// Values by their bytes, each as the character of that number.
    headers: Vec<(String, String)>,
}

/// The part of the head that says when it is the event's turn.
#[derive(Deserialize)]
struct Place {
    object: Option<String>,
    arrived_us: u64,
}

/// The head of an event as JSON.
fn head(bytes: &Bytes) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(FORMAT)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

impl StoredEvent {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        let head = Head {
            method: self.method.clone(),
            target: self.target.clone(),
            key: self.key.clone(),
            object: self.object.clone(),
            arrived_us: self.arrived_us,
            redrive: self.redrive,
            headers: self
                .headers
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), text(value)))
                .collect(),
        };
        let head = serde_json::to_vec(&head).expect("texts and numbers");
        let mut bytes = Vec::with_capacity(FORMAT.len() + 4 + head.len() + self.body.len());
        bytes.extend_from_slice(FORMAT);
        bytes.extend_from_slice(&u32::try_from(head.len()).expect("a head is bounded").to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// What an event is about and when it arrived, by its bytes; `None` if they are not one.
    pub(super) fn place(bytes: &Bytes) -> Option<(Option<String>, u64)> {
        let place: Place = serde_json::from_slice(head(bytes)?).ok()?;
        Some((place.object, place.arrived_us))
    }

    /// An event from its bytes; `None` if they are not one.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let head = head(bytes)?;
        let length = head.len();
        let head: Head = serde_json::from_slice(head).ok()?;
        let mut headers = HeaderMap::new();
        for (name, value) in head.headers {
            let value: Option<Vec<u8>> = value.chars().map(|one| u8::try_from(u32::from(one)).ok()).collect();
            headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(&value?).ok()?);
        }
        Some(Self {
            method: head.method,
            target: head.target,
            key: head.key,
            object: head.object,
            arrived_us: head.arrived_us,
            redrive: head.redrive,
            headers,
            body: bytes.slice(FORMAT.len() + 4 + length..),
        })
    }
}

#[cfg(test)]
#[path = "stored_event_test.rs"]
mod tests;
