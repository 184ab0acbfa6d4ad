//! Whether a route wants a precondition on every update.

use http::{HeaderMap, Method};

use super::Preconditions;
use crate::problem::Problem;

/// Whether an update must say which version it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreconditionRule {
    /// Preconditions are left to the service, and are passed on untouched.
    #[default]
    Optional,
    /// A PUT, PATCH or DELETE without `If-Match`, `If-None-Match` or a readable `If-Unmodified-Since` is refused with
    /// 428 `precondition-required`, with a key or without. The receipt comes first: a retry of a request that is done
    /// gets its recorded answer.
    Required,
}

impl PreconditionRule {
    /// The name, as it is in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }

    /// The methods that need a precondition where one is required. A POST mostly creates: there is no version to
    /// compare.
    pub const METHODS: [Method; 3] = [Method::PUT, Method::PATCH, Method::DELETE];

    /// Whether a request with these fields may be carried out. It never says whether the precondition holds: only the
    /// service knows the current version.
    #[inline]
    pub(crate) fn check(self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        if self == Self::Optional { Ok(()) } else { Self::check_required(method, headers) }
    }

    fn check_required(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        if !Self::METHODS.contains(method) {
            return Ok(());
        }
        match Preconditions::from_headers(headers) {
            Ok(preconditions) if preconditions.protects_update() => Ok(()),
            Ok(_) => Err(Problem::PreconditionRequired),
            Err(malformed) => Err(Problem::PreconditionMalformed(malformed.to_string())),
        }
    }
}

#[cfg(test)]
#[path = "rule_test.rs"]
mod tests;
