//! A message: what an outbox keeps, a relay publishes and a consumer handles. Its id is its idempotency key everywhere.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use onceward::{Error, ErrorKind, Fingerprint, KEY_BYTES_MAX, Result};

/// Longest topic, in bytes.
pub const TOPIC_BYTES_MAX: usize = 200;
/// Longest ordering key, in bytes.
pub const ORDERING_KEY_BYTES_MAX: usize = 255;
/// Most headers of one message.
pub const HEADERS_MAX: usize = 64;
/// Names and values of all headers of one message together, in bytes.
pub const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Longest payload, in bytes. With the headers it stays below what NATS takes by default, which is 1 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 960 << 10;

/// Header names that begin like this are ours, or the broker's: NATS, RabbitMQ, HTTP.
const RESERVED: [&str; 7] =
    ["onceward-", "nats-", "x-death", "x-first-death-", "x-stream-", "proxy-", "webhook-"];
/// Header names that route a message in RabbitMQ, or belong to a request or a connection of HTTP.
const RESERVED_NAMES: [&str; 13] = [
    "cc",
    "bcc",
    "x-delivery-count",
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A message to be published: topic, payload, and optionally an ordering key and headers.
///
/// ```
/// use onceward_flows::Message;
///
/// let placed = Message::new("orders.placed", r#"{"order":81}"#).with_ordering_key("customer-7");
/// assert_eq!(placed.id().len(), 36); // made here: the idempotency key of the message everywhere downstream
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    id: String,
    topic: String,
    ordering_key: Option<String>,
    headers: BTreeMap<String, String>,
    payload: Bytes,
}

impl Message {
    /// A message with a new random id. Nothing is checked before it is added to an outbox.
    pub fn new(topic: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            id: random_id(),
            topic: topic.into(),
            ordering_key: None,
            headers: BTreeMap::new(),
            payload: payload.into(),
        }
    }

    /// Sets the ordering key. Messages with the same ordering key are published, and handled by consumers, in the order
    /// in which their transactions committed. Those without one have no order.
    pub fn with_ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Adds a header. A second one with the same name replaces the first.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the id: for messages whose id is decided elsewhere. Two messages with the same id have one effect.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The idempotency key of the message.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The key within which it is ordered.
    pub fn ordering_key(&self) -> Option<&str> {
        self.ordering_key.as_deref()
    }

    /// The headers, by name.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// The content.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Checks every bound. An outbox and a consumer do this themselves.
    pub fn check(&self) -> Result<()> {
        check_id(&self.id)?;
        check_topic(&self.topic)?;
        if let Some(key) = &self.ordering_key {
            check_ordering_key(key)?;
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(invalid(format!(
                "{} headers; at most {HEADERS_MAX} are allowed",
                self.headers.len()
            )));
        }
        let mut bytes = 0;
        for (name, value) in &self.headers {
            check_header(name, value)?;
            bytes += name.len() + value.len();
        }
        if bytes > HEADERS_BYTES_MAX {
            return Err(invalid(format!("headers of {bytes} bytes; at most {HEADERS_BYTES_MAX} fit")));
        }
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(invalid(format!(
                "a payload of {} bytes; at most {PAYLOAD_BYTES_MAX} fit: store the content elsewhere and send its address",
                self.payload.len()
            )));
        }
        Ok(())
    }

    /// What of a malformed message is within all bounds; the payload as it is. An id that is none becomes `place`, and an
    /// ordering key that is none one that is as different from others.
    #[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn within_bounds(mut self, place: &str) -> Self {
        if check_id(&self.id).is_err() {
            place.clone_into(&mut self.id);
        }
        if check_topic(&self.topic).is_err() {
            "unknown".clone_into(&mut self.topic);
        }
        if let Some(key) = self.ordering_key.take() {
            let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            let is_key = check_ordering_key(&key).is_ok();
            self.ordering_key = Some(if is_key { key } else { format!("unreadable:{hash:016x}") });
        }
        let mut bytes = 0;
        let headers = std::mem::take(&mut self.headers).into_iter();
        let fits = |(name, value): &(String, String)| {
            let fits =
                check_header(name, value).is_ok() && bytes + name.len() + value.len() <= HEADERS_BYTES_MAX;
            bytes += if fits { name.len() + value.len() } else { 0 };
            fits
        };
        self.headers = headers.filter(fits).take(HEADERS_MAX).collect();
        self
    }

    /// What makes it the same message as another one with its id.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut content = self.topic.as_bytes().to_vec();
        content.push(0);
        content.extend_from_slice(&self.payload);
        Fingerprint::of(&content)
    }

    /// The headers as they are stored: one JSON object.
    pub(crate) fn headers_json(&self) -> String {
        serde_json::to_string(&self.headers).expect("texts are JSON")
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", test))]
    /// A message as it was stored, unchecked: it was checked before.
    pub(crate) fn from_stored(
        id: String,
        topic: String,
        ordering_key: Option<String>,
        headers: &str,
        payload: Bytes,
    ) -> Result<Self> {
        let headers = serde_json::from_str(headers).map_err(|_| {
            Error::new(ErrorKind::Damaged, "the headers of a stored message are not a JSON object of texts")
        })?;
        Ok(Self { id, topic, ordering_key, headers, payload })
    }
}

/// Without the payload: it may be long, and it has no business in a log.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} on {}, {} bytes)", self.id, self.topic, self.payload.len())
    }
}

/// A random UUID (version 4).
pub(crate) fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let number = u128::from_be_bytes(bytes);
    let part = |from: u32, digits: u32| (number >> (128 - from - digits * 4)) & ((1 << (digits * 4)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(0, 8),
        part(32, 4),
        part(48, 4),
        part(64, 4),
        part(80, 12)
    )
}

fn check_id(id: &str) -> Result<()> {
    check_length("the message id", id.len(), KEY_BYTES_MAX)?;
    match id.bytes().find(|byte| !(0x21..=0x7e).contains(byte)) {
        Some(bad) => Err(invalid(format!(
            "the message id contains byte 0x{bad:02x}; only printable ASCII without spaces is allowed"
        ))),
        None => Ok(()),
    }
}

fn check_ordering_key(key: &str) -> Result<()> {
    check_length("the ordering key", key.len(), ORDERING_KEY_BYTES_MAX)?;
    match key.chars().find(|char| char.is_control()) {
        Some(bad) => {
            Err(invalid(format!("the ordering key contains {bad:?}; control characters are not allowed")))
        }
        None => Ok(()),
    }
}

/// Topics are subjects in NATS and streams elsewhere: words between dots, without wildcards.
fn check_topic(topic: &str) -> Result<()> {
    check_length("the topic", topic.len(), TOPIC_BYTES_MAX)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b':');
    if topic.split('.').all(|word| !word.is_empty() && word.bytes().all(plain)) {
        return Ok(());
    }
    Err(invalid(format!(
        "`{}` is not a topic; it is words of letters, digits, `_`, `-`, `/` and `:`, with a dot between two words",
        topic.escape_default()
    )))
}

fn check_header(name: &str, value: &str) -> Result<()> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(is_token) {
        let name = name.escape_default();
        return Err(invalid(format!(
            "`{name}` is not a header name; it has letters, digits, `_`, `-` and `.`"
        )));
    }
    if is_reserved(name) {
        return Err(invalid(format!(
            "the header `{name}` has a reserved name: a broker would take it for its own; choose another"
        )));
    }
    // A line break would begin another header.
    if value.chars().any(char::is_control) {
        return Err(invalid(format!("the header `{name}` has a control character in its value")));
    }
    Ok(())
}

/// Whether a header belongs to us or to a broker, and not to the message.
pub(crate) fn is_reserved(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    RESERVED.iter().any(|reserved| lower.starts_with(reserved)) || RESERVED_NAMES.contains(&&*lower)
}

fn check_length(what: &str, len: usize, max: usize) -> Result<()> {
    match len {
        0 => Err(invalid(format!("{what} is empty"))),
        len if len > max => Err(invalid(format!("{what} is {len} bytes long; at most {max} fit"))),
        _ => Ok(()),
    }
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::Invalid, detail)
}

#[cfg(test)]
#[path = "message_test.rs"]
mod tests;
