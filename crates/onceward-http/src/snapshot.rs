//! Encodes and decodes a response as it is stored in a receipt.
//!
//! ```text
//! byte 0      format, 1
//! bytes 1..3  status, little endian
//! bytes 3..5  number of fields, little endian
//! per field   name length 2 · name · value length 4 · value
//! then        the body, to the end
//! ```
//!
//! The receipt that contains it has the checksum. Fields keep their order and number, so that a replay is
//! the same response and not merely an equal one.

use bytes::{Buf, BufMut, Bytes};
use http::header::{
    CONNECTION, DATE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};

use crate::headers;

const FORMAT: u8 = 1;
const COUNT_AT: usize = 3;
const HEAD_BYTES: usize = 5;

/// Never stored and never replayed: what belongs to one connection, one moment or one user agent.
const NEVER_STORED: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    DATE,
    SET_COOKIE,
    WWW_AUTHENTICATE,
    PROXY_AUTHENTICATE,
];

/// Which fields are left out, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omitted(Vec<HeaderName>);

impl Default for Omitted {
    fn default() -> Self {
        Self(NEVER_STORED.into())
    }
}

impl Omitted {
    /// Adds a field.
    pub fn with_field(mut self, name: HeaderName) -> Self {
        if !self.0.contains(&name) {
            self.0.push(name);
        }
        self
    }

    /// Takes `Set-Cookie` off the list. Nothing else can be: the rest belongs to one connection or moment.
    pub fn without_cookies(mut self) -> Self {
        self.0.retain(|name| name != SET_COOKIE);
        self
    }

    /// All of them.
    pub fn fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.0.iter()
    }
}

/// Encodes a response. Fields named by `Connection`, and those in `omitted`, are left out.
pub fn encode(status: StatusCode, headers: &HeaderMap, body: &[u8], omitted: &Omitted) -> Bytes {
    let has_connection = headers::has(headers, &CONNECTION);
    let named_by_connection = |name: &HeaderName| {
        let mut lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
        lines.any(|line| line.split(',').any(|named| named.trim().eq_ignore_ascii_case(name.as_str())))
    };
    let fields_max: usize = headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum();
    let mut out = Vec::with_capacity(HEAD_BYTES + fields_max + body.len());
    out.put_u8(FORMAT);
    out.put_u16_le(status.as_u16());
    // The count, replaced once it is known.
    out.put_u16_le(0);
    let mut count = 0u16;
    for (name, value) in headers {
        if omitted.0.contains(name) || has_connection && named_by_connection(name) {
            continue;
        }
        let (Some(next), Ok(value_len)) = (count.checked_add(1), u32::try_from(value.len())) else {
            continue;
        };
        count = next;
        let name = name.as_str().as_bytes();
        out.put_u16_le(u16::try_from(name.len()).expect("a field name is at most 64 KiB long"));
        out.extend_from_slice(name);
        out.put_u32_le(value_len);
        out.extend_from_slice(value.as_bytes());
    }
    out[COUNT_AT..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
    out.extend_from_slice(body);
    Bytes::from(out)
}

/// Decodes a response; `None` if these are not the bytes of one. The body is a slice, not a copy.
pub fn decode(bytes: &Bytes) -> Option<Response<Bytes>> {
    decode_as(bytes, std::convert::identity)
}

/// The same with a body of this kind: a response is large, and is made once.
pub(crate) fn decode_as<B>(bytes: &Bytes, body: impl FnOnce(Bytes) -> B) -> Option<Response<B>> {
    // What is read by its bytes is not made a buffer of its own, which would be counted and released again.
    let mut rest = &bytes[..];
    if rest.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let status = StatusCode::from_u16(rest.try_get_u16_le().ok()?).ok()?;
    let count = rest.try_get_u16_le().ok()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let len = usize::from(rest.try_get_u16_le().ok()?);
        let name = HeaderName::from_bytes(rest.split_off(..len)?).ok()?;
        let len = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
        let at = bytes.len() - rest.len();
        rest.split_off(..len)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(at..at + len)).ok()?;
        headers.try_append(name, value).ok()?;
    }
    let mut response = Response::new(body(bytes.slice(bytes.len() - rest.len()..)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod tests;
