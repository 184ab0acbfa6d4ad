//! Which paths a route is for: `/charges`, `/orders/{id}/refunds`, `/api/*`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};

/// The path of a route. Matched against the path as it came, byte for byte: what a service takes for the
/// same path is its own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
    /// Whether it ends in `/*`: anything may follow, even nothing.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// These very bytes.
    Same(String),
    /// One segment, not empty.
    Any,
}

impl Pattern {
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut segments = path.split('/');
        for part in &self.parts {
            match (part, segments.next()) {
                (Part::Same(wanted), Some(segment)) if wanted == segment => {}
                (Part::Any, Some(segment)) if !segment.is_empty() => {}
                _ => return false,
            }
        }
        self.open || segments.next().is_none()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Everything.
    pub fn all() -> Self {
        Self { text: "/*".into(), parts: Vec::new(), open: true }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("the path `{text}` does not begin with a slash"));
        };
        let (rest, open) = match rest.strip_suffix('*') {
            Some("") => ("", true),
            Some(front) => match front.strip_suffix('/') {
                Some(front) => (front, true),
                None => {
                    return Err(format!(
                        "`*` stands for whole segments at the end of a path, as in `/api/*`, not as in `{text}`"
                    ));
                }
            },
            None => (rest, false),
        };
        let parts = if rest.is_empty() && open {
            Vec::new()
        } else {
            rest.split('/').map(part).collect::<Result<_, _>>()?
        };
        Ok(Self { text: text.into(), parts, open })
    }
}

fn part(segment: &str) -> Result<Part, String> {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inside {
        Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(Part::Any),
        None if !segment.contains(['{', '}', '*', '?', '#']) => Ok(Part::Same(segment.into())),
        _ => Err(format!("`{segment}` is no segment of a path; write `{{name}}` for any one segment")),
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
