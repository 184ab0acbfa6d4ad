//! The `Idempotency-Key` field: a Structured Field String, or, leniently, the raw text that clients
//! in the wild send.

use std::fmt;

use http::{HeaderMap, HeaderValue};
use onceward::KEY_BYTES_MAX;

use crate::headers::IDEMPOTENCY_KEY;

/// How strictly the field is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// Only a Structured Field String: `"8e03978e"`, with the quotes.
    Strict,
    /// With the quotes or without; both are the same key.
    #[default]
    Lenient,
}

/// Why a key is refused. One sentence for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// There are several field lines.
    Several,
    /// It is not a Structured Field String, nor acceptable as raw text.
    Malformed,
    /// It is empty.
    Empty,
    /// It is too long.
    TooLong,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Several => "there are several Idempotency-Key fields; send exactly one",
            Self::Malformed => {
                "the Idempotency-Key is not a string of printable ASCII; send it in double quotes, as RFC 9651 has it"
            }
            Self::Empty => "the Idempotency-Key is empty; send a new random value for each intent",
            Self::TooLong => "the Idempotency-Key is longer than 255 characters",
        })
    }
}

/// Reads the key of a request; `None` if it has none.
pub fn read(headers: &HeaderMap, form: KeyForm) -> Result<Option<String>, BadKey> {
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(BadKey::Several);
    }
    let key = parse(line, form)?;
    match key.len() {
        0 => Err(BadKey::Empty),
        1..=KEY_BYTES_MAX => Ok(Some(key)),
        _ => Err(BadKey::TooLong),
    }
}

fn parse(line: &HeaderValue, form: KeyForm) -> Result<String, BadKey> {
    let bytes = line.as_bytes().trim_ascii();
    // Whatever begins like a Structured Field String must be a whole one: quotes are parsed, not
    // trimmed, so `"a` and `"a"b` are no keys in either form.
    if bytes.first() == Some(&b'"') || form == KeyForm::Strict {
        let item = sfv::Parser::new(bytes).parse::<sfv::Item>().map_err(|_| BadKey::Malformed)?;
        // Parameters have no meaning here; a key that carries some was meant for somebody else.
        if !item.params.is_empty() {
            return Err(BadKey::Malformed);
        }
        return match item.bare_item {
            sfv::BareItem::String(text) => Ok(text.as_str().to_owned()),
            _ => Err(BadKey::Malformed),
        };
    }
    // Raw: printable ASCII without the characters that would make it a list, a parameter or a quote,
    // nor spaces, which intermediaries fold.
    let acceptable = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b';' | b'"' | b'\\');
    if !bytes.iter().all(acceptable) {
        return Err(BadKey::Malformed);
    }
    Ok(std::str::from_utf8(bytes).expect("graphic ASCII").to_owned())
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
