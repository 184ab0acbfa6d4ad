//! The terms by which a route names an intent: who asks (scope) and what for (operation). A change of these terms
//! gives every intent another id, so an intent may have to be looked for under former terms as well.

use http::Method;
use onceward::Id;

use crate::fingerprint::{Caller, SECRET_BYTES};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::scope::{self, CallerHead, OnAnonymous, ScopeFrom};

/// The identity terms of a route: sources of the scope, what callers without one get, and the name of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) scope: Vec<ScopeFrom>,
    pub(crate) on_anonymous: Option<OnAnonymous>,
    pub(crate) operation: Operation,
}

impl Default for Identity {
    fn default() -> Self {
        Self { scope: vec![ScopeFrom::Auto], on_anonymous: None, operation: Operation::default() }
    }
}

impl Identity {
    /// The terms of a route that has these settings.
    pub fn new(
        scope: impl IntoIterator<Item = ScopeFrom>,
        on_anonymous: Option<OnAnonymous>,
        operation: Operation,
    ) -> Self {
        Self { scope: scope.into_iter().collect(), on_anonymous, operation }
    }

    /// The id of a request, and whether it is known who asks.
    pub(crate) fn id(
        &self,
        method: &Method,
        head: CallerHead<'_>,
        key: &str,
        secret: &[u8; SECRET_BYTES],
    ) -> Result<(Id, Caller), Problem> {
        let (scope, caller) = scope::read(&self.scope, self.on_anonymous, head, secret)
            .map_err(|unnamed| Problem::ScopeMissing(unnamed.to_string()))?;
        let operation = self.operation.of(method, head.uri.path());
        let id = Id::new(scope.as_str(), &operation, key)
            .map_err(|error| Problem::KeyMalformed(error.to_string()))?;
        Ok((id, caller))
    }
}
