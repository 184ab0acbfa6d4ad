//! Which operations a worker has code for: one by its name, all with a prefix, or all of a route.

use crate::error::{Error, Result};
use crate::id::Id;

/// A pattern for operations.
///
/// ```text
/// payout                    this operation
/// payout*                   all that begin with it
/// POST /orders/{id}/pay     a route: a part in braces stands for one part of a path
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Name(String),
    Prefix(String),
    /// Parts between slashes; `None` stands for any.
    Route(Vec<Option<String>>),
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (name, prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        // An operation is what may be one in an id.
        if !(prefix && name.is_empty()) {
            Id::new("scope", name, "key")?;
        }
        if name.contains('*') {
            return Err(Error::invalid(format!("`{text}` has a `*` that is not its end")));
        }
        if prefix {
            return Ok(Self::Prefix(name.to_owned()));
        }
        if !name.contains('{') {
            return Ok(Self::Name(name.to_owned()));
        }
        let part = |part: &str| match part.strip_prefix('{').map(|rest| rest.strip_suffix('}')) {
            Some(Some(inside)) if !inside.contains(['{', '}']) => Ok(None),
            None if !part.contains(['{', '}']) => Ok(Some(part.to_owned())),
            _ => {
                Err(Error::invalid(format!("`{text}` has braces that do not hold one whole part of a path")))
            }
        };
        name.split('/').map(part).collect::<Result<_>>().map(Self::Route)
    }

    pub(crate) fn matches(&self, operation: &str) -> bool {
        match self {
            Self::Name(name) => operation == name,
            // A step goes on with its intent.
            Self::Prefix(prefix) => operation.starts_with(prefix) && !operation.contains('#'),
            Self::Route(parts) => {
                let mut given = operation.split('/');
                let fits = |part: &Option<String>, given: &str| match part {
                    Some(part) => part == given,
                    None => !given.is_empty() && !given.contains('#'),
                };
                parts.iter().all(|part| given.next().is_some_and(|given| fits(part, given)))
                    && given.next().is_none()
            }
        }
    }
}

#[cfg(test)]
#[path = "pattern_test.rs"]
mod tests;
