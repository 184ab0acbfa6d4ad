//! A request that is ready to be sent, as often as it takes: everything about it is in memory, and
//! every try sends the same.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use onceward::{Fingerprint, KEY_BYTES_MAX};
use reqwest::Url;

use super::error::{Error, Result};
use super::judge::Guard;
use crate::fingerprint::{Head, Rules, SECRET_BYTES, fingerprint};

/// A request with all that its tries have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What `Idempotency-Key` carries, if it carries anything.
    pub(crate) key: Option<Key>,
}

/// A key that may be sent: 1 to 255 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// A new one, as random as a UUID (version 4) and written like one.
    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::invalid(format!("the system gives no random numbers: {error}")))?;
        let bits = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        Ok(Self(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])))
    }

    /// The caller's own.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let fits = (1..=KEY_BYTES_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err(Error::invalid(format!(
                "a key is 1 to {KEY_BYTES_MAX} printable ASCII characters, this one is not"
            )));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// A Structured Field String (RFC 9651).
    pub(crate) fn field_value(&self) -> HeaderValue {
        let mut quoted = String::with_capacity(self.0.len() + 2);
        quoted.push('"');
        for letter in self.0.chars() {
            if matches!(letter, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(letter);
        }
        quoted.push('"');
        HeaderValue::try_from(quoted).expect("printable ASCII")
    }
}

/// The journal's fingerprints need no secret: the request itself lies beside them.
const NO_SECRET: [u8; SECRET_BYTES] = *b"onceward client journal, public!";

impl Prepared {
    /// What makes it harmless to send this twice.
    pub(crate) fn guard(&self) -> Guard {
        Guard::of(&self.method, self.key.is_some())
    }

    /// The host and port it goes to. (A name and password in front of it would make another host of
    /// it; harmless, and not worth a copy.)
    pub(crate) fn authority(&self) -> &str {
        self.url.authority()
    }

    /// What is asked, by the rules of the server's side: a JSON body by its value, so that an
    /// application that writes its members in another order after a restart still means the same. The
    /// host counts as part of the path.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let whole = self.url.as_str();
        let path = whole.split(['?', '#']).next().expect("a split has a first part");
        let head = Head { method: &self.method, path, query: self.url.query(), headers: &self.headers };
        fingerprint(&Rules::default(), &NO_SECRET, &head, &self.body)
    }
}
