//! Spellings of a path. A route matches a path by its text, and a service may take other spellings for the same path:
//! such a request would pass a route that requires a key, and be another operation under the same key.
//!
//! ```text
//! /%63harges                             /charges: escapes that mean nothing are decoded, and are forwarded so
//! /x/../charges  //charges  /a%2Fb       refused: services disagree about them
//! /Charges  /charges/                    /charges, where the settings say that the service ignores the difference
//! /charges;a                             refused: services disagree about parameters; the settings say what this one does
//! ```

use std::borrow::Cow;

use http::Method;

use crate::config::Pattern;

/// How paths are compared and which are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// Whether ambiguous paths are refused and needless escapes decoded.
    pub normalise: bool,
    pub case: Spelling,
    pub trailing_slash: Spelling,
    pub parameters: PathParameters,
}

/// Whether the service makes a difference between two spellings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spelling {
    /// It does.
    #[default]
    Exact,
    /// It does not.
    Ignore,
}

/// What the service does with the parameters of a path (`/charges;a=1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathParameters {
    /// Nobody has said. A service that drops them would do the same work for two operations, so under `normalise` such
    /// paths are refused.
    #[default]
    Refuse,
    /// It makes a difference.
    Exact,
    /// It drops them.
    Ignore,
}

/// A path after the rules were applied.
#[derive(Debug, PartialEq, Eq)]
pub struct RuledPath<'p> {
    /// What is forwarded.
    pub forwarded: Cow<'p, str>,
    /// What routes, the operation and the fingerprint see.
    pub compared: Cow<'p, str>,
}

impl PathRules {
    /// The path to forward and to compare, or why the path is refused.
    pub fn apply(self, path: &str) -> Result<RuledPath<'_>, &'static str> {
        let forwarded = if self.normalise { normalised(path)? } else { Cow::Borrowed(path) };
        if self.normalise && self.parameters == PathParameters::Refuse && forwarded.contains(';') {
            return Err(
                "the path has parameters (`;`), which services read differently; `path_parameters` says how",
            );
        }
        let mut compared = forwarded.clone();
        if self.case == Spelling::Ignore && compared.bytes().any(|byte| byte.is_ascii_uppercase()) {
            compared = Cow::Owned(compared.to_ascii_lowercase());
        }
        if self.parameters == PathParameters::Ignore && compared.contains(';') {
            compared = Cow::Owned(without_parameters(&compared).into_owned());
        }
        if self.trailing_slash == Spelling::Ignore && compared.len() > 1 && compared.ends_with('/') {
            compared = Cow::Owned(compared.trim_end_matches('/').to_owned());
        }
        Ok(RuledPath { forwarded, compared })
    }

    /// A pattern in the spelling that paths are compared in.
    pub fn pattern(self, pattern: &Pattern) -> Pattern {
        let mut pattern = pattern.clone();
        if self.case == Spelling::Ignore {
            pattern = pattern.in_small_letters();
        }
        if self.trailing_slash == Spelling::Ignore {
            pattern = pattern.without_trailing_slash();
        }
        pattern
    }

    /// A method that only its capitals tell from a guarded one is refused: some services take it for the same.
    pub fn check_method(self, method: &Method) -> Result<(), &'static str> {
        let spelled_otherwise = self.normalise
            && STANDARD_METHODS.iter().any(|standard| {
                method.as_str().eq_ignore_ascii_case(standard) && method.as_str() != *standard
            });
        if spelled_otherwise { Err("methods are written in capitals") } else { Ok(()) }
    }
}

const STANDARD_METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// The path without its parameters (`;a=1`), for matching routes.
pub fn without_parameters(path: &str) -> Cow<'_, str> {
    if !path.contains(';') {
        return Cow::Borrowed(path);
    }
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// RFC 3986, section 6.2.2, for what has one meaning; a refusal for what has several.
fn normalised(path: &str) -> Result<Cow<'_, str>, &'static str> {
    if path.contains('\\') {
        return Err("the path contains a backslash");
    }
    let decoded = if path.contains('%') { Cow::Owned(decoded(path)?) } else { Cow::Borrowed(path) };
    let mut segments = decoded.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        // Some services drop the parameters of a segment before they look at its dots.
        let name = segment.split(';').next().unwrap_or_default();
        if name == "." || name == ".." {
            return Err("the path contains a dot segment");
        }
        if name.is_empty() && segments.peek().is_some() {
            return Err("the path contains an empty segment");
        }
    }
    Ok(decoded)
}

/// Decodes the escapes of unreserved characters, and writes the others in capitals.
fn decoded(path: &str) -> Result<String, &'static str> {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, escaped)) = rest.split_once('%') {
        text.push_str(before);
        let digits = escaped.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let digits = digits.ok_or("the path contains a `%` that begins no escape")?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| "the path contains an invalid escape")?;
        match byte {
            b'/' | b'\\' => return Err("the path contains an encoded slash"),
            0..0x20 | 0x7f => return Err("the path contains an encoded control character"),
            b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                text.push(char::from(byte));
            }
            _ => {
                text.push('%');
                text.push_str(&digits.to_ascii_uppercase());
            }
        }
        rest = &escaped[2..];
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
#[path = "path_rules_test.rs"]
mod tests;
