//! How an endpoint says "not now", refuses, fails or holds in its own words: a status, or something in its JSON.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::error::Error;

/// A kind of answer: a status such as `202`, a JSON pointer such as `/errors`, or one with a value such as
/// `/errors/0/extensions/code=IN_PROGRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// Answers with this status.
    Status(u16),
    /// Answers whose body is JSON with something other than `null` and `[]` at this pointer (RFC 6901).
    Pointer(String),
    /// Answers whose body is JSON with this value, text or other, at this pointer.
    Value(String, String),
}

impl Pattern {
    /// Whether an answer with this status and body is of this kind.
    pub(super) fn fits(&self, status: u16, body: &[u8]) -> bool {
        let at = |pointer: &str| {
            let json: Value = serde_json::from_slice(body).ok()?;
            json.pointer(pointer).cloned()
        };
        match self {
            Self::Status(of) => *of == status,
            Self::Pointer(pointer) => {
                at(pointer).is_some_and(|found| !found.is_null() && found != Value::Array(Vec::new()))
            }
            Self::Value(pointer, value) => at(pointer).is_some_and(|found| match &found {
                Value::String(text) => text == value,
                other => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *other),
            }),
        }
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.starts_with('/') {
            return Ok(match text.split_once('=') {
                Some((pointer, value)) => Self::Value(pointer.to_owned(), value.to_owned()),
                None => Self::Pointer(text.to_owned()),
            });
        }
        match text.parse() {
            Ok(status @ 100..=599) => Ok(Self::Status(status)),
            _ => Err(Error::invalid(format!(
                "`{text}` is neither a status nor a JSON pointer such as /errors or /code=BUSY"
            ))),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Pointer(pointer) => f.write_str(pointer),
            Self::Value(pointer, value) => write!(f, "{pointer}={value}"),
        }
    }
}

#[cfg(test)]
#[path = "pattern_test.rs"]
mod tests;
