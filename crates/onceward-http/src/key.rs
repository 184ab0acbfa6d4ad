//! Parses the `Idempotency-Key` field: a Structured Field String or, leniently, the raw text that many clients send.

use std::borrow::Cow;
use std::fmt;

use http::{HeaderMap, HeaderValue};
use onceward::{Error, ErrorKind, KEY_BYTES_MAX, Result};
use regex_lite::Regex;

use crate::headers::IDEMPOTENCY_KEY;

/// How strictly the field is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyForm {
    /// Only a Structured Field String: `"8e03978e"`, with the quotes.
    Strict,
    /// With the quotes or without; both are the same key.
    #[default]
    Lenient,
    /// The text as it is, including quotes. For clients of an API without quoted keys.
    Raw,
}

impl KeyForm {
    /// Its name in configurations and publications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lenient => "lenient",
            Self::Raw => "raw",
        }
    }
}

/// Which keys a route takes.
#[derive(Clone, Debug)]
pub struct KeyShape {
    form: KeyForm,
    length_min: usize,
    pattern: Option<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    whole: Regex,
}

/// Why a key is refused. One sentence for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadKey {
    /// There are several field lines.
    Several,
    /// It is not a Structured Field String, nor acceptable as raw text.
    Malformed,
    /// It is empty.
    Empty,
    /// It is too long.
    TooLong,
    /// It is shorter than this many characters, which the route wants.
    TooShort(usize),
    /// It does not match the route's pattern.
    Mismatch,
}

impl BadKey {
    /// The sentence, about a key that is called this.
    pub(crate) fn about(self, name: &str) -> String {
        match self {
            Self::Several => format!("there are several {name} fields; send exactly one"),
            Self::Malformed => format!(
                "the {name} is not a string of printable ASCII; send it in double quotes, as RFC 9651 has it"
            ),
            Self::Empty => format!("the {name} is empty; send a new random value for each intent"),
            Self::TooLong => format!("the {name} is longer than 255 characters"),
            Self::TooShort(min) => format!(
                "the {name} is shorter than {min} characters; send a random value that cannot be guessed"
            ),
            Self::Mismatch => format!("the {name} does not have the form that is published for this route"),
        }
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about("Idempotency-Key"))
    }
}

impl Default for KeyShape {
    fn default() -> Self {
        Self { form: KeyForm::default(), length_min: 1, pattern: None }
    }
}

impl KeyShape {
    /// Sets how strictly the field is read.
    pub fn with_form(mut self, form: KeyForm) -> Self {
        self.form = form;
        self
    }

    /// Sets the fewest characters of a key.
    pub(crate) fn with_length_min(mut self, characters: usize) -> Result<Self> {
        if !(1..=KEY_BYTES_MAX).contains(&characters) {
            let detail = format!(
                "a key of at least {characters} characters; it must be between 1 and {KEY_BYTES_MAX}"
            );
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        self.length_min = characters;
        Ok(self)
    }

    /// Sets the regular expression that a key must match as a whole.
    pub(crate) fn with_pattern(mut self, pattern: &str) -> Result<Self> {
        let bad = |error: regex_lite::Error| {
            Error::new(ErrorKind::Invalid, format!("{pattern:?} is no pattern for keys")).caused_by(error)
        };
        // On its own first: `a)(b` is not valid, and must not become valid inside the group.
        Regex::new(pattern).map_err(bad)?;
        let whole = Regex::new(&format!("^(?:{pattern})$")).map_err(bad)?;
        self.pattern = Some(Pattern { text: pattern.to_owned(), whole });
        Ok(self)
    }

    /// How strictly the field is read.
    pub fn form(&self) -> KeyForm {
        self.form
    }

    /// The fewest characters of a key.
    pub fn length_min(&self) -> usize {
        self.length_min
    }

    /// The regular expression that a key must match as a whole.
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_ref().map(|pattern| pattern.text.as_str())
    }

    /// Reads the key of a request; `None` if it has none.
    pub fn read<'h>(&self, headers: &'h HeaderMap) -> Result<Option<Cow<'h, str>>, BadKey> {
        self.read_lines(headers.get_all(IDEMPOTENCY_KEY).iter())
    }

    /// Reads the key from its header lines, for a caller that has looked them up already.
    pub(crate) fn read_lines<'h>(
        &self,
        mut lines: impl Iterator<Item = &'h HeaderValue>,
    ) -> Result<Option<Cow<'h, str>>, BadKey> {
        let Some(line) = lines.next() else { return Ok(None) };
        if lines.next().is_some() {
            return Err(BadKey::Several);
        }
        let key = parse(line, self.form)?;
        self.check(&key, KEY_BYTES_MAX)?;
        Ok(Some(key))
    }

    /// Whether a key has the length and the pattern that the route wants.
    pub(crate) fn check(&self, key: &str, bytes_max: usize) -> Result<(), BadKey> {
        match key.len() {
            0 => Err(BadKey::Empty),
            len if len < self.length_min => Err(BadKey::TooShort(self.length_min)),
            len if len > bytes_max => Err(BadKey::TooLong),
            _ => match &self.pattern {
                Some(pattern) if !pattern.whole.is_match(key) => Err(BadKey::Mismatch),
                _ => Ok(()),
            },
        }
    }
}

fn parse(line: &HeaderValue, form: KeyForm) -> Result<Cow<'_, str>, BadKey> {
    let bytes = line.as_bytes().trim_ascii();
    let is_acceptable = match form {
        KeyForm::Strict => return parse_quoted(bytes),
        // Whatever begins like a Structured Field String must be a whole one: quotes are parsed, not
        // trimmed, so `"a` and `"a"b` are no keys.
        KeyForm::Lenient if bytes.first() == Some(&b'"') => return parse_quoted(bytes),
        // Printable ASCII without the characters that would make it a list, a parameter or a quote, nor
        // spaces, which intermediaries fold.
        KeyForm::Lenient => {
            all(bytes, |byte| byte.is_ascii_graphic() & !matches!(byte, b',' | b';' | b'"' | b'\\'))
        }
        KeyForm::Raw => all(bytes, |byte| matches!(byte, b' '..=b'~')),
    };
    if !is_acceptable {
        return Err(BadKey::Malformed);
    }
    Ok(Cow::Borrowed(std::str::from_utf8(bytes).expect("printable ASCII")))
}

/// Whether all bytes are of this kind. Without an early end, whole blocks are compared at once: nearly all keys are as
/// they must be.
fn all(bytes: &[u8], is: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |all, byte| all & is(*byte))
}

fn parse_quoted(bytes: &[u8]) -> Result<Cow<'_, str>, BadKey> {
    // Most keys have nothing to unescape: the key is the text between the quotes.
    if let [b'"', inside @ .., b'"'] = bytes
        && all(inside, |byte| matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\'))
    {
        return Ok(Cow::Borrowed(std::str::from_utf8(inside).expect("printable ASCII")));
    }
    let item = sfv::Parser::new(bytes).parse::<sfv::Item>().map_err(|_| BadKey::Malformed)?;
    // Parameters have no meaning here, so a key with parameters is refused.
    if !item.params.is_empty() {
        return Err(BadKey::Malformed);
    }
    match item.bare_item {
        sfv::BareItem::String(text) => Ok(Cow::Owned(text.as_str().to_owned())),
        _ => Err(BadKey::Malformed),
    }
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
