//! Encodes and decodes a request as it is stored in the journal.
//!
//! ```text
//! byte 0         format, 2
//! bytes 1..9     stored at, µs since 1970, little endian
//! bytes 9..17    honoured until, µs since 1970: after this a retry could run a second time
//! then           key length 1 · key · method length 1 · method · URL length 4 · URL
//! then           number of fields 2 · per field: name length 2 · name · value length 4 · value
//! then           number of credentials 1 · per credential: name length 2 · name; their values are never stored
//! then           the body, to the end
//! ```
//!
//! The receipt that contains it has the checksum.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;

use super::error::{Error, Result};
use super::prepared_request::{Key, PreparedRequest};

const FORMAT: u8 = 2;

/// A request with the time at which it was stored and the time until which it may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRequest {
    pub(crate) put_us: u64,
    pub(crate) honoured_until_us: u64,
    pub(crate) request: Arc<PreparedRequest>,
    /// The names of the credentials that the client sent with it.
    pub(crate) credentials: Vec<HeaderName>,
}

/// The clock may be set back by this much while a process is down. If it was set back further, the age of a stored
/// request is unknown.
const SET_BACK_MAX: Duration = Duration::from_secs(60);

impl StoredRequest {
    /// How long the server still honours the key, by the machine's clock. `None` if the key may have expired, or if
    /// the clock was set back too far to be trusted.
    pub(crate) fn honoured_for(&self, now_us: u64) -> Option<Duration> {
        let set_back = Duration::from_micros(self.put_us.saturating_sub(now_us));
        if set_back > SET_BACK_MAX {
            return None;
        }
        // Never longer than when it was stored, whatever the clock says now.
        let left = self.honoured_until_us.saturating_sub(now_us.max(self.put_us));
        Some(Duration::from_micros(left)).filter(|left| !left.is_zero())
    }

    /// Encodes the request. Fails if a part is too long for its length field.
    pub(crate) fn encode(&self) -> Result<Bytes> {
        let PreparedRequest { method, url, headers, body, key } = &*self.request;
        let key = key.as_ref().map(Key::text).unwrap_or_default();
        let fields: usize = headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum();
        let mut out = BytesMut::with_capacity(64 + key.len() + url.as_str().len() + fields + body.len());
        out.put_u8(FORMAT);
        out.put_u64_le(self.put_us);
        out.put_u64_le(self.honoured_until_us);
        out.put_u8(fit(key.len(), "the key")?);
        out.put_slice(key.as_bytes());
        out.put_u8(fit(method.as_str().len(), "the method")?);
        out.put_slice(method.as_str().as_bytes());
        out.put_u32_le(fit(url.as_str().len(), "the URL")?);
        out.put_slice(url.as_str().as_bytes());
        out.put_u16_le(fit(headers.len(), "the list of fields")?);
        for (name, value) in headers {
            out.put_u16_le(fit(name.as_str().len(), "a field's name")?);
            out.put_slice(name.as_str().as_bytes());
            out.put_u32_le(fit(value.len(), "a field's value")?);
            out.put_slice(value.as_bytes());
        }
        out.put_u8(fit(self.credentials.len(), "the list of credentials")?);
        for name in &self.credentials {
            out.put_u16_le(fit(name.as_str().len(), "a field's name")?);
            out.put_slice(name.as_str().as_bytes());
        }
        out.put_slice(body);
        Ok(out.freeze())
    }

    /// Decodes a request; `None` if the bytes are not valid. The body is a slice, not a copy.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut input = bytes.clone();
        if input.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let put_us = input.try_get_u64_le().ok()?;
        let honoured_until_us = input.try_get_u64_le().ok()?;
        let length = input.try_get_u8().ok()?;
        let key = Key::parse(&text(&mut input, length)?).ok()?;
        let length = input.try_get_u8().ok()?;
        let method = Method::from_bytes(text(&mut input, length)?.as_bytes()).ok()?;
        let length = input.try_get_u32_le().ok()?;
        let url = Url::parse(&text(&mut input, length)?).ok()?;
        let mut headers = HeaderMap::new();
        for _ in 0..input.try_get_u16_le().ok()? {
            let length = input.try_get_u16_le().ok()?;
            let name = HeaderName::from_bytes(&take(&mut input, length)?).ok()?;
            let length = input.try_get_u32_le().ok()?;
            let value = HeaderValue::from_maybe_shared(take(&mut input, length)?).ok()?;
            headers.try_append(name, value).ok()?;
        }
        let mut credentials = Vec::new();
        for _ in 0..input.try_get_u8().ok()? {
            let length = input.try_get_u16_le().ok()?;
            credentials.push(HeaderName::from_bytes(&take(&mut input, length)?).ok()?);
        }
        let request = Arc::new(PreparedRequest { method, url, headers, body: input, key: Some(key) });
        Some(Self { put_us, honoured_until_us, request, credentials })
    }
}

fn fit<T: TryFrom<usize>>(length: usize, what: &str) -> Result<T> {
    T::try_from(length).map_err(|_| Error::invalid(format!("{what} is too long to be written to a journal")))
}

fn text(input: &mut Bytes, length: impl TryInto<usize>) -> Option<String> {
    String::from_utf8(take(input, length)?.into()).ok()
}

fn take(input: &mut Bytes, length: impl TryInto<usize>) -> Option<Bytes> {
    let length = length.try_into().ok()?;
    (length <= input.len()).then(|| input.split_to(length))
}

#[cfg(test)]
#[path = "stored_request_test.rs"]
pub(crate) mod tests;
