//! The operation of a request: its method, and its path or the name of its route.

use http::Method;
use onceward::{Error, ErrorKind, OPERATION_BYTES_MAX, Result};

/// How the operation of a request is named. Two requests with the same key are the same intent only if
/// their operations are the same too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// By method and path: `POST /orders/7/refunds`.
    #[default]
    Path,
    /// By method and a name that all paths of the route share: `POST refunds`. The same key on two paths
    /// is then one key used for two requests, and refused.
    Named(Name),
}

/// The name of a route, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

/// Longer than any method that is registered.
const METHOD_BYTES_MAX: usize = 32;
/// Half of the limit of an operation; the rest is for the names of steps inside it.
const NAME_BYTES_MAX: usize = OPERATION_BYTES_MAX / 2;

impl Operation {
    /// By method and this name: 1 to 256 printable ASCII characters without `#`.
    pub fn named(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain(name) {
            let detail = format!(
                "{name:?} cannot name a route; a name is 1 to {NAME_BYTES_MAX} printable ASCII characters without '#'"
            );
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        Ok(Self::Named(Name(name.to_owned())))
    }

    /// The name that all paths of the route share, unless the operation is named by the path.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(Name(name)) => Some(name),
            Self::Path => None,
        }
    }

    /// The operation of a request. A name that is too long or has other characters is hashed.
    pub(crate) fn of(&self, method: &Method, path: &str) -> String {
        let method = method.as_str();
        let name = match self {
            Self::Named(Name(name)) => name,
            Self::Path => path,
        };
        if !is_usual(method) && (method.len() > METHOD_BYTES_MAX || !is_plain(method)) {
            let mut hasher = blake3::Hasher::new();
            hasher.update(method.as_bytes()).update(b" ").update(name.as_bytes());
            return format!("~{}", hasher.finalize().to_hex());
        }
        if name.len() > NAME_BYTES_MAX || !is_plain(name) {
            return format!("{method} ~{}", blake3::hash(name.as_bytes()).to_hex());
        }
        let mut operation = String::with_capacity(method.len() + 1 + name.len());
        operation.push_str(method);
        operation.push(' ');
        operation.push_str(name);
        operation
    }
}

/// The methods that nearly all guarded requests have.
fn is_usual(method: &str) -> bool {
    matches!(method, "POST" | "PUT" | "PATCH" | "DELETE")
}

/// Whether it can be a part of an id: printable ASCII, without the mark of a step.
fn is_plain(text: &str) -> bool {
    // Without an early end, whole blocks are compared at once.
    text.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'"' | b'$'..=b'~'))
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path => f.write_str("method and path"),
            Self::Named(Name(name)) => write!(f, "method and \"{name}\""),
        }
    }
}

#[cfg(test)]
#[path = "operation_test.rs"]
mod tests;
