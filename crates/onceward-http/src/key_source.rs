//! Where the key of a request comes from: a header field, or a member of its JSON body.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use onceward::{Error, ErrorKind, KEY_BYTES_MAX, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::fingerprint::Pointer;
use crate::headers::IDEMPOTENCY_KEY;
use crate::key::{BadKey, KeyShape};
use crate::problem::Problem;
use crate::webhook::Scheme;

/// Where the key of a request comes from. As text: `header:NAME` or `body:POINTER`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFrom {
    /// This header field, in the form that the route takes.
    Header(HeaderName),
    /// This member of the JSON body: a string as it is, an integer by its digits. A value that is longer than 255
    /// characters or has others than printable ASCII is hashed.
    Body(Pointer),
    /// The sender's id of a webhook, behind its verified signature. Set by
    /// [`RouteBuilder::with_webhook`](crate::RouteBuilder::with_webhook).
    Event(Scheme),
}

impl Default for KeyFrom {
    fn default() -> Self {
        Self::Header(IDEMPOTENCY_KEY)
    }
}

impl fmt::Display for KeyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::Event(scheme) => write!(f, "event:{}", scheme.name()),
        }
    }
}

impl FromStr for KeyFrom {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("`{text}` {why}")));
        match text.split_once(':') {
            Some(("header", name)) => match HeaderName::try_from(name) {
                Ok(name) => Ok(Self::Header(name)),
                Err(_) => refuse("does not name a header field"),
            },
            Some(("body", "")) => refuse("points to the whole body; write one member, as in `body:/id`"),
            Some(("body", pointer)) => Ok(Self::Body(Pointer::parse(pointer)?)),
            _ => refuse("is not a source of keys; write `header:NAME` or `body:/pointer`"),
        }
    }
}

impl KeyFrom {
    /// The field that the key is in, if it is in one.
    pub fn field(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Body(_) | Self::Event(_) => None,
        }
    }

    /// What messages call the key.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Header(name) => title_case(name),
            Self::Body(pointer) => format!("member `{pointer}` of the body"),
            Self::Event(_) => "id of the event".into(),
        }
    }

    /// Reads the key from the body; `None` if the document has no such member.
    pub(crate) fn read_body(
        pointer: &Pointer,
        shape: &KeyShape,
        body: &[u8],
    ) -> Result<Option<String>, Problem> {
        let malformed = |why: String| Problem::KeyMalformed(why);
        let mut json = serde_json::Deserializer::from_slice(body);
        let found =
            Follow(pointer.steps()).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
        let Some(found) = found.map_err(|error| {
            malformed(format!(
                "the key is the member `{pointer}` of a JSON body, and this body cannot be read: {error}"
            ))
        })?
        else {
            return Ok(None);
        };
        let Some(text) = text_of(&found) else {
            return Err(malformed(format!(
                "the key is the member `{pointer}` of the body, which must be a string or an integer"
            )));
        };
        match shape.check(&text, usize::MAX) {
            Ok(()) => Ok(Some(as_key(text))),
            Err(BadKey::Empty) => {
                Err(malformed(format!("the key is the member `{pointer}` of the body, which is empty")))
            }
            Err(bad) => Err(malformed(bad.about(&Self::Body(pointer.clone()).name()))),
        }
    }

    /// The refusal of a request without a key.
    pub(crate) fn missing(&self) -> Problem {
        match self {
            Self::Header(name) if *name == IDEMPOTENCY_KEY => Problem::KeyMissing,
            Self::Header(name) => Problem::KeyMissingFrom(format!(
                "Send {}: one new random value per intent, the same one on every retry.",
                title_case(name)
            )),
            Self::Event(_) => {
                Problem::KeyMissingFrom("An event must have the id that its sender gave it.".into())
            }
            Self::Body(pointer) => Problem::KeyMissingFrom(format!(
                "The key of a request is the member `{pointer}` of its JSON body; this one has none."
            )),
        }
    }
}

/// A text as a key: hashed where it is too long or has other characters. So that no text can be the hash of another,
/// one that looks like a hash is hashed too.
pub(crate) fn as_key(text: String) -> String {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if plain && text.len() <= KEY_BYTES_MAX && !text.starts_with(HASHED) {
        return text;
    }
    format!("{HASHED}{}", blake3::hash(text.as_bytes()).to_hex())
}

/// What a hashed key begins with.
const HASHED: char = '~';

/// `PayPal-Request-Id` as people write it, of the name that is kept in small letters.
fn title_case(name: &HeaderName) -> String {
    let parts = name.as_str().split('-').map(|part| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    parts.collect::<Vec<_>>().join("-")
}

/// A string as it is, an integer by its digits.
fn text_of(value: &RawValue) -> Option<String> {
    let raw = value.get();
    if raw.starts_with('"') {
        return serde_json::from_str(raw).ok();
    }
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // Zero has one spelling.
    integer.then(|| if digits == "0" { digits.to_owned() } else { raw.to_owned() })
}

/// The value at the end of these steps. A member whose name is repeated on the way is an error: services read the
/// first, the last or both.
struct Follow<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Follow<'_> {
    type Value = Option<Box<RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Follow<'_> {
    type Value = Option<Box<RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (step, rest) = self.0.split_first().expect("there is a step left");
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name != *step {
                map.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                return Err(A::Error::custom(format!("the member `{step}` is there more than once")));
            } else {
                found = Some(map.next_value_seed(Follow(rest))?);
            }
        }
        Ok(found.flatten())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let (step, rest) = self.0.split_first().expect("there is a step left");
        let index = crate::fingerprint::array_index(step);
        let (mut at, mut found) = (0, None);
        loop {
            if Some(at) == index {
                match items.next_element_seed(Follow(rest))? {
                    Some(value) => found = value,
                    None => return Ok(None),
                }
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    // A value that the pointer leads through has no members.
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
#[path = "key_source_test.rs"]
mod tests;
