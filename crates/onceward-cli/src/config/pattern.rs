//! Path patterns of routes: `/charges`, `/orders/{id}/refunds`, `/api/*`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};

/// The path pattern of a route. It is compared with the path of the request byte for byte; the gateway brings paths into
/// one spelling before (`proxy/path_rules.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// Whether it ends in `/*`: any number of segments may follow, also none.
    has_wildcard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exactly this text.
    Literal(String),
    /// Any segment that is not empty.
    Any,
}

impl Pattern {
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut actual = path.split('/');
        for expected in &self.segments {
            match (expected, actual.next()) {
                (Segment::Literal(text), Some(segment)) if text == segment => {}
                (Segment::Any, Some(segment)) if !segment.is_empty() => {}
                _ => return false,
            }
        }
        self.has_wildcard || actual.next().is_none()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same pattern in small letters.
    pub fn in_small_letters(&self) -> Self {
        self.text.to_ascii_lowercase().parse().expect("a valid pattern stays valid")
    }

    /// The same pattern without a slash at its end.
    pub fn without_trailing_slash(&self) -> Self {
        match self.text.strip_suffix('/') {
            Some("") | None => self.clone(),
            Some(text) => text.parse().expect("a valid pattern stays valid"),
        }
    }

    /// The pattern that matches every path.
    pub fn all() -> Self {
        Self { text: "/*".into(), segments: Vec::new(), has_wildcard: true }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("the path `{text}` must begin with a slash"));
        };
        let (rest, has_wildcard) = match rest.strip_suffix('*') {
            Some("") => ("", true),
            Some(front) => match front.strip_suffix('/') {
                Some(front) => (front, true),
                None => {
                    return Err(format!(
                        "in `{text}`, `*` is not a segment of its own at the end of the path, as in `/api/*`"
                    ));
                }
            },
            None => (rest, false),
        };
        let segments = if rest.is_empty() && has_wildcard {
            Vec::new()
        } else {
            rest.split('/').map(parse_segment).collect::<Result<_, _>>()?
        };
        Ok(Self { text: text.into(), segments, has_wildcard })
    }
}

fn parse_segment(segment: &str) -> Result<Segment, String> {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inside {
        Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(Segment::Any),
        None if !segment.contains(['{', '}', '*', '?', '#']) => Ok(Segment::Literal(segment.into())),
        _ => Err(format!("`{segment}` is not a segment of a path; write `{{name}}` for any one segment")),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[path = "pattern_test.rs"]
mod tests;
