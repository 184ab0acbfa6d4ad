//! Chooses how a body is read, from `Content-Type` and `Content-Encoding`.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};

use crate::request_fields::RequestFields;

/// Longest boundary of a multipart body (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

/// What the header fields say about the body. Nothing is refused here: what is malformed names no
/// format, and the body then counts by its bytes.
#[derive(Debug)]
pub(super) struct Media<'h> {
    /// The media type without its parameters, in its original case.
    pub(super) essence: Cow<'h, [u8]>,
    /// The content coding; empty if there is none.
    pub(super) coding: Cow<'h, [u8]>,
    /// Behind the essence, with the semicolon.
    parameters: &'h [u8],
}

/// The canonicaliser that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format<'h> {
    Json,
    Form,
    /// With its boundary.
    Multipart(&'h [u8]),
    Other,
}

impl<'h> Media<'h> {
    pub(super) fn of(headers: &'h HeaderMap, fields: RequestFields) -> Self {
        let mut coding = Cow::Borrowed(&b""[..]);
        if fields.has(RequestFields::CONTENT_ENCODING) {
            coding = joined(headers, &CONTENT_ENCODING);
        }
        if coding.eq_ignore_ascii_case(b"identity") {
            coding = Cow::Borrowed(b"");
        }
        match joined(headers, &CONTENT_TYPE) {
            Cow::Borrowed(line) => {
                let end = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
                let essence = Cow::Borrowed(line[..end].trim_ascii());
                Self { essence, coding, parameters: &line[end..] }
            }
            // Several lines contradict each other; which one the service obeys is its own affair.
            several @ Cow::Owned(_) => Self { essence: several, coding, parameters: &[] },
        }
    }

    pub(super) fn format(&self) -> Format<'h> {
        let essence = &*self.essence;
        let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
        if !self.coding.is_empty() {
            Format::Other
        } else if is("application/json") || is_json_suffixed(essence) {
            Format::Json
        } else if is("application/x-www-form-urlencoded") {
            Format::Form
        } else if is("multipart/form-data") {
            boundary(self.parameters).map_or(Format::Other, Format::Multipart)
        } else {
            Format::Other
        }
    }
}

/// `application/problem+json` and its like. A comma would mean two types in one line.
fn is_json_suffixed(essence: &[u8]) -> bool {
    let Some((_, suffix)) = essence.split_at_checked(essence.len().wrapping_sub(b"+json".len())) else {
        return false;
    };
    suffix.eq_ignore_ascii_case(b"+json") && !essence.contains(&b',')
}

/// A field's lines, joined as RFC 9110 joins them; one line is not copied.
fn joined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Cow<'h, [u8]> {
    let mut lines = headers.get_all(name).iter();
    let Some(first) = lines.next() else { return Cow::Borrowed(b"") };
    let mut all = Cow::Borrowed(first.as_bytes().trim_ascii());
    for line in lines {
        let all = all.to_mut();
        all.extend_from_slice(b", ");
        all.extend_from_slice(line.as_bytes().trim_ascii());
    }
    all
}

/// The one `boundary` among the parameters; none where it is missing, repeated or not a legal one.
fn boundary(mut rest: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    while let Some(behind) = rest.trim_ascii_start().strip_prefix(b";") {
        let behind = behind.trim_ascii_start();
        if behind.is_empty() || behind[0] == b';' {
            rest = behind;
            continue;
        }
        let equals = behind.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&behind[..equals], &behind[equals + 1..]);
        let text;
        (text, rest) = if let Some(quoted) = value.strip_prefix(b"\"") {
            let end = end_of_quoted(quoted)?;
            (&quoted[..end], &quoted[end + 1..])
        } else {
            let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
            (value[..end].trim_ascii_end(), &value[end..])
        };
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(text).is_some() {
            return None;
        }
    }
    let legal = |boundary: &&[u8]| {
        (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
            && boundary.iter().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte))
            && boundary.last() != Some(&b' ')
    };
    if rest.trim_ascii().is_empty() { found.filter(legal) } else { None }
}

/// Where the closing quote is. An escaped character in a boundary is not legal anyway.
fn end_of_quoted(quoted: &[u8]) -> Option<usize> {
    let mut escaped = false;
    quoted.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
#[path = "media_test.rs"]
mod test;
