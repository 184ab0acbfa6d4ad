//! The terms by which a route names an intent: who asks (scope) and what for (operation). A change of these terms
//! gives every intent another id, so an intent may have to be looked for under previous terms as well.

use http::{Extensions, Method};
use onceward::Id;

use crate::fingerprint::{Caller, SECRET_BYTES};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::scope::{self, CallerHead, CallerScope, FormerCallers, OnAnonymous, ScopeFrom};

/// The identity terms of a route: sources of the scope, what callers without one get, and the name of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) scope: Vec<ScopeFrom>,
    pub(crate) on_anonymous: Option<OnAnonymous>,
    pub(crate) operation: Operation,
    /// The name of the settings that determine callers in front of the layer.
    pub(crate) callers_from: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            scope: vec![ScopeFrom::Auto],
            on_anonymous: None,
            operation: Operation::default(),
            callers_from: None,
        }
    }
}

impl Identity {
    /// The terms of a route that has these settings.
    pub fn new(
        scope: impl IntoIterator<Item = ScopeFrom>,
        on_anonymous: Option<OnAnonymous>,
        operation: Operation,
    ) -> Self {
        Self { scope: scope.into_iter().collect(), on_anonymous, operation, callers_from: None }
    }

    /// The sources of the scope.
    pub fn scope(&self) -> &[ScopeFrom] {
        &self.scope
    }

    /// Returns the treatment of callers without a scope; `None` if the sources decide.
    pub fn on_anonymous(&self) -> Option<OnAnonymous> {
        self.on_anonymous
    }

    /// How the operation is named.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Names the settings by which callers are determined in front of the layer. As former terms of a route, these read
    /// their caller from [`FormerCallers`] under this name, where the settings of today would determine another one.
    pub fn with_callers_from(mut self, name: impl Into<String>) -> Self {
        self.callers_from = Some(name.into());
        self
    }

    /// The caller of a request, where these are former terms.
    pub(crate) fn caller_in<'e>(&self, extensions: &'e Extensions) -> Option<&'e CallerScope> {
        match &self.callers_from {
            Some(name) => extensions.get::<FormerCallers>()?.find(name),
            None => extensions.get(),
        }
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
