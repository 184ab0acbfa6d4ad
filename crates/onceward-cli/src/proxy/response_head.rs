//! Parses the head of a response that ends at a declared length. Everything else is left to hyper, which knows every
//! framing: a head that is not plain is no error here.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

/// As many fields as hyper takes.
const FIELDS_MAX: usize = 100;

/// What the bytes that have arrived are.
#[derive(Debug)]
pub enum ResponseHead {
    /// Not yet a whole head.
    Partial,
    /// A head that was taken off the bytes, and the length of its body.
    Plain(PlainHead),
    /// A response for hyper: chunked, without a length, malformed, of another version. No byte was taken off.
    Unusual,
    /// A field that cannot be passed on.
    Malformed,
}

/// A response without its body.
#[derive(Debug)]
pub struct PlainHead {
    pub response: Response<()>,
    pub body_bytes: u64,
    /// The connection may serve another request after this response.
    pub keeps_connection: bool,
}

#[derive(Clone, Copy, Default)]
struct FieldSpan {
    name: (usize, usize),
    value: (usize, usize),
}

/// Takes the head of a response off `input`, and interim responses before it.
pub fn parse(input: &mut BytesMut) -> ResponseHead {
    loop {
        let mut spans = [FieldSpan::default(); FIELDS_MAX];
        let (status, head_bytes, fields) = {
            let mut fields = [const { std::mem::MaybeUninit::uninit() }; FIELDS_MAX];
            let mut head = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
                &mut head,
                input,
                &mut fields,
            );
            match parsed {
                Ok(httparse::Status::Partial) => return ResponseHead::Partial,
                Err(_) => return ResponseHead::Unusual,
                Ok(httparse::Status::Complete(_)) if head.version != Some(1) => return ResponseHead::Unusual,
                Ok(httparse::Status::Complete(length)) => {
                    let start = input.as_ptr() as usize;
                    let span = |text: &[u8]| {
                        let from = text.as_ptr() as usize - start;
                        (from, from + text.len())
                    };
                    for (field, place) in head.headers.iter().zip(&mut spans) {
                        *place = FieldSpan { name: span(field.name.as_bytes()), value: span(field.value) };
                    }
                    (head.code.unwrap_or_default(), length, head.headers.len())
                }
            }
        };
        match status {
            101 => return ResponseHead::Unusual,
            100..=199 => {
                input.advance(head_bytes);
                continue;
            }
            _ => {}
        }
        let Ok(status) = StatusCode::from_u16(status) else { return ResponseHead::Unusual };
        let Some(body_bytes) = body_bytes(input, status, &spans[..fields]) else {
            return ResponseHead::Unusual;
        };
        let head = input.split_to(head_bytes).freeze();
        return match plain_head(&head, status, body_bytes, &spans[..fields]) {
            Some(head) => ResponseHead::Plain(head),
            None => ResponseHead::Malformed,
        };
    }
}

/// The length of the body, if it is declared once and beyond question.
fn body_bytes(input: &[u8], status: StatusCode, spans: &[FieldSpan]) -> Option<u64> {
    let mut length = None;
    for span in spans {
        let name = &input[span.name.0..span.name.1];
        if name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str().as_bytes()) {
            return None;
        }
        if name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes()) {
            if length.is_some() {
                return None;
            }
            length = Some(decimal(&input[span.value.0..span.value.1])?);
        }
    }
    if has_no_body(status) { Some(0) } else { length }
}

fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn plain_head(head: &Bytes, status: StatusCode, body_bytes: u64, spans: &[FieldSpan]) -> Option<PlainHead> {
    let mut headers = HeaderMap::with_capacity(spans.len());
    // Some services send a body with a response that has none. It would be read as the next response.
    let mut keeps_connection = !has_no_body(status);
    for span in spans {
        let name = HeaderName::from_bytes(&head[span.name.0..span.name.1]).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice(span.value.0..span.value.1)).ok()?;
        if name == CONNECTION && names_close(&value) {
            keeps_connection = false;
        }
        headers.append(name, value);
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(PlainHead { response, body_bytes, keeps_connection })
}

/// A length as RFC 9112 writes it: digits only.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn names_close(value: &HeaderValue) -> bool {
    value.as_bytes().split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
#[path = "response_head_test.rs"]
mod tests;
