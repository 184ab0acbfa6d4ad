//! A request that is ready to be sent, with its idempotency key. It is held in memory, and every try sends the same
//! bytes.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use onceward::{Fingerprint, KEY_BYTES_MAX, Runtime};
use reqwest::Url;

use super::error::{Error, Result};
use super::retry_decision::Guard;
use onceward_http::fingerprint::{Head, Rules, SECRET_BYTES, fingerprint};

/// A request as every try sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The value of `Idempotency-Key`, if one is sent.
    pub(crate) key: Option<Key>,
}

/// A valid idempotency key: 1 to 255 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// A Structured Field String (RFC 9651): the key in quotes, as it is sent.
    field_value: HeaderValue,
}

impl Key {
    /// A new key: a UUID of version 7, 48 bits of time before 74 random bits. It begins with the time so that keys
    /// made one after the other are adjacent in every index, the server's and the journal's, which keeps the pages
    /// in the cache. Every call makes one, so it is formatted without an intermediate allocation.
    pub(crate) fn random(runtime: &dyn Runtime, now: SystemTime) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // A wrong clock costs only the order of the keys.
        let time_ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let random = runtime.random() & !(u128::MAX << 80) & !(0xf << 76) & !(0x3 << 62);
        let bits = (time_ms << 80) | (0x7 << 76) | (0x2 << 62) | random;
        let mut quoted = *b"\"00000000-0000-0000-0000-000000000000\"";
        let mut digits = quoted.iter_mut().filter(|place| **place == b'0');
        for byte in bits.to_be_bytes() {
            for half in [byte >> 4, byte & 0xf] {
                *digits.next().expect("32 digits are 16 bytes") = DIGITS[usize::from(half)];
            }
        }
        Self { field_value: HeaderValue::from_bytes(&quoted).expect("printable ASCII") }
    }

    /// Checks a key that the caller has chosen.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let fits = (1..=KEY_BYTES_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err(Error::invalid(format!(
                "a key is 1 to {KEY_BYTES_MAX} printable ASCII characters, this one is not"
            )));
        }
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for letter in text.chars() {
            if matches!(letter, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(letter);
        }
        quoted.push('"');
        Ok(Self { field_value: HeaderValue::try_from(quoted).expect("printable ASCII") })
    }

    /// The key itself.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        let quoted = self.field_value.to_str().expect("printable ASCII");
        let escaped = &quoted[1..quoted.len() - 1];
        if !escaped.contains('\\') {
            return Cow::Borrowed(escaped);
        }
        let mut letters = escaped.chars();
        let unescape =
            || letters.next().map(|letter| if letter == '\\' { letters.next() } else { Some(letter) });
        Cow::Owned(std::iter::from_fn(unescape).flatten().collect())
    }

    pub(crate) fn field_value(&self) -> HeaderValue {
        self.field_value.clone()
    }
}

/// The journal's fingerprints need no secret: the request itself is stored next to them.
const NO_SECRET: [u8; SECRET_BYTES] = *b"onceward client journal, public!";

impl PreparedRequest {
    /// What makes it safe to send this twice.
    pub(crate) fn guard(&self) -> Guard {
        Guard::of(&self.method, self.key.is_some())
    }

    /// The host and port it is sent to. A user name and password in the URL are included, so such a URL counts as
    /// another host; that is harmless and saves a copy.
    pub(crate) fn authority(&self) -> &str {
        self.url.authority()
    }

    /// The fingerprint of the request, by the same rules as the server's: a JSON body is compared by value, so that an
    /// application may write its members in another order after a restart. The host counts as part of the path.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let whole = self.url.as_str();
        let path = whole.split(['?', '#']).next().expect("a split has a first part");
        let head = Head::new(&self.method, path, self.url.query(), &self.headers);
        fingerprint(&Rules::default(), &NO_SECRET, &head, &self.body)
    }
}

#[cfg(test)]
#[path = "prepared_request_test.rs"]
mod tests;
