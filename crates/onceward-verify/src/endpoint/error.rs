//! Errors: why an endpoint could not be checked. A broken promise is a verdict, not an error.

use std::fmt;

/// The kind of an error of the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something that was asked for makes no sense.
    Invalid,
    /// The host may not be your own.
    NotYours,
    /// The endpoint, its effects or its start command did not answer.
    Unreachable,
    /// The endpoint does not do, for one plain request, what everything else rests on.
    Unfit,
}

/// Why an endpoint could not be checked, in one line that an operator can act on.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// The request, or why it could not be done.
pub type Result<T, E = Error> = std::result::Result<T, E>;
