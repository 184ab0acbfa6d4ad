//! Whether a route wants a precondition on every update.

use http::{HeaderMap, HeaderName, Method};

use super::Preconditions;
use crate::problem::Problem;

static METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

/// Whether an update must say which version it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreconditionRule {
    /// Preconditions are left to the service, and are passed on untouched.
    #[default]
    Optional,
    /// A PUT, PATCH or DELETE without `If-Match`, `If-None-Match` or a readable `If-Unmodified-Since` is refused with
    /// 428 `precondition-required`, with a key or without; so is one that names such a method in
    /// `X-HTTP-Method-Override`. The receipt comes first: a retry of a request that is done
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
        if !Self::METHODS.contains(method) && !overrides_with_update(headers) {
            return Ok(());
        }
        match Preconditions::from_headers(headers) {
            Ok(preconditions) if preconditions.protects_update() => Ok(()),
            Ok(_) => Err(Problem::PreconditionRequired),
            Err(malformed) => Err(Problem::PreconditionMalformed(malformed.to_string())),
        }
    }
}

/// Whether a line names one of the methods. Services differ on case and on which of several counts, so any of them does.
fn overrides_with_update(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(&METHOD_OVERRIDE).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).any(|name| {
        let name = name.trim_ascii();
        PreconditionRule::METHODS.iter().any(|method| name.eq_ignore_ascii_case(method.as_str().as_bytes()))
    })
}

#[cfg(test)]
#[path = "rule_test.rs"]
mod tests;
