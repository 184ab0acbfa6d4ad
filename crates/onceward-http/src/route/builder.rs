//! The builder of a route. Setters take any value; [`RouteBuilder::build`] checks all of them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use onceward::{Error, ErrorKind, OnUnknown, Policy, Result, Retention, WAIT_MAX};

use super::{Effects, KeyRule, OnStoreFailure, Route};
use crate::action::{Action, StatusClass};
use crate::fingerprint;
use crate::identity::Identity;
use crate::key::KeyForm;
use crate::key_source::KeyFrom;
use crate::operation::Operation;
use crate::precondition::PreconditionRule;
use crate::problem::Problem;
use crate::reconcile::{Reconcile, Reconciler};
use crate::scope::{OnAnonymous, ScopeFrom};

/// Builds a [`Route`]. See [`Route::builder`] and [`Route::to_builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder changes nothing until `build` is called"]
pub struct RouteBuilder {
    route: Route,
    // Not checked yet.
    key_length_min: Option<usize>,
    key_pattern: Option<String>,
    retentions: Vec<(StatusClass, Retention)>,
    status_retentions: Vec<(StatusCode, Retention)>,
    statuses: Vec<(String, StatusCode)>,
}

impl From<Route> for RouteBuilder {
    fn from(route: Route) -> Self {
        Self {
            route,
            key_length_min: None,
            key_pattern: None,
            retentions: Vec::new(),
            status_retentions: Vec::new(),
            statuses: Vec::new(),
        }
    }
}

impl RouteBuilder {
    /// Sets whether a key is required.
    pub fn with_key(mut self, rule: KeyRule) -> Self {
        self.route.key = rule;
        self
    }

    /// Sets where the key comes from. By default it is the field `Idempotency-Key`.
    pub fn with_key_from(mut self, source: KeyFrom) -> Self {
        self.route.key_from = source;
        self
    }

    /// Sets how strictly keys are read.
    pub fn with_key_form(mut self, form: KeyForm) -> Self {
        self.route.shape = self.route.shape.with_form(form);
        self
    }

    /// Sets the fewest characters of a key.
    pub fn with_key_length_min(mut self, characters: usize) -> Self {
        self.key_length_min = Some(characters);
        self
    }

    /// Sets the regular expression that a key must match as a whole.
    pub fn with_key_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.key_pattern = Some(pattern.into());
        self
    }

    /// Sets which methods are guarded.
    pub fn with_methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.route.methods = methods.into_iter().collect();
        self
    }

    /// Sets the contract: lease, retention, duplicates, unknown outcomes.
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.route.policy = policy.into();
        self
    }

    /// Sets where the scope comes from.
    pub fn with_scope(self, scope: ScopeFrom) -> Self {
        self.with_scopes([scope])
    }

    /// Sets several sources of the scope, which count together: a caller is the same only if all of them say the same.
    pub fn with_scopes(mut self, scopes: impl IntoIterator<Item = ScopeFrom>) -> Self {
        self.route.identity.scope = scopes.into_iter().collect();
        self
    }

    /// Sets what a request gets that does not say who asks. Without this, the source of the scope decides.
    pub fn with_on_anonymous(mut self, rule: OnAnonymous) -> Self {
        self.route.identity.on_anonymous = Some(rule);
        self
    }

    /// Sets how the operation is named.
    pub fn with_operation(mut self, operation: Operation) -> Self {
        self.route.identity.operation = operation;
        self
    }

    /// Adds terms under which receipts of this route may still exist: those before a change of scope or operation. An
    /// intent is then claimed under both ids, and an answer under either one is the answer.
    pub fn with_former_identity(mut self, former: Identity) -> Self {
        self.route.former.push(former);
        self
    }

    /// Sets what of a request its fingerprint is made of.
    pub fn with_fingerprint(mut self, rules: fingerprint::Rules) -> Self {
        self.route.fingerprint = rules;
        self
    }

    /// Sets the largest request body. It is read whole before the claim, so that it can be compared.
    pub fn with_request_bytes_max(mut self, bytes: usize) -> Self {
        self.route.request_bytes_max = bytes;
        self
    }

    /// Sets the largest response body that is kept. A larger one is passed on and not replayed.
    pub fn with_response_bytes_max(mut self, bytes: usize) -> Self {
        self.route.response_bytes_max = bytes;
        self
    }

    /// Sets how long an answer waits for its receipt if the store is away at that moment and unknown outcomes are held.
    /// Then it is sent with `Onceward-Recorded: not-yet`. The default is 2 seconds; at most 1 hour.
    pub fn with_record_wait(mut self, wait: Duration) -> Self {
        self.route.record_wait = wait;
        self
    }

    /// Adds a response field that is never stored.
    pub fn with_omitted_field(mut self, name: HeaderName) -> Self {
        self.route.omitted = self.route.omitted.with_field(name);
        self
    }

    /// Has `Set-Cookie` stored and replayed like any other field. By default it is not: a cookie is made
    /// for the client of that one request.
    pub fn with_cookies_replayed(mut self) -> Self {
        self.route.omitted = self.route.omitted.without_cookies();
        self
    }

    /// Sets what a response with this status means for its key.
    pub fn with_on_status(mut self, status: StatusCode, action: Action) -> Self {
        self.route.actions.on_status(status, action);
        self
    }

    /// Sets what a response of this class means for its key, unless its status is set by itself or named by the
    /// contract: a class never covers 401, 403, 407, 412, 421, 423, 425, 426, 428 and 429 (refused before execution)
    /// nor 408, 502, 503, 504 and 520 to 599 (a hop may have lost the answer).
    pub fn with_on_class(mut self, class: StatusClass, action: Action) -> Self {
        self.route.actions.on_class(class, action);
        self
    }

    /// Sets what a 5xx response means for its key: 500, 501 and the others that the contract does not name.
    pub fn with_on_server_error(self, action: Action) -> Self {
        self.with_on_class(StatusClass::ServerError, action)
    }

    /// Sets how long a response of this class is kept, whatever the policy says.
    pub fn with_retention(mut self, class: StatusClass, retention: Retention) -> Self {
        self.retentions.push((class, retention));
        self
    }

    /// Sets how long a response with this status is kept, whatever the policy or its class says.
    pub fn with_status_retention(mut self, status: StatusCode, retention: Retention) -> Self {
        self.status_retentions.push((status, retention));
        self
    }

    /// Sets what the statuses mean with which a timeout or a hop loses an answer.
    pub(crate) fn with_on_answer_lost(mut self, action: Action) -> Self {
        self.route.actions.on_answer_lost(action);
        self
    }

    /// Sets the status with which a problem is answered. Its type stays what it is.
    pub fn with_problem_status(mut self, name: &str, status: StatusCode) -> Self {
        self.statuses.push((name.to_owned(), status));
        self
    }

    /// Sets the hook that reconciles unknown outcomes. They are held meanwhile, whatever the policy says.
    pub fn with_reconcile(mut self, hook: impl Reconcile) -> Self {
        self.route.reconciler = Some(Arc::new(Reconciler::new(hook)));
        self
    }

    /// Says that all effects of the handler are in the transaction in which it commits its response
    /// ([`ResponseLease::transact`](crate::ResponseLease::transact)). A run that was cut short is then simply begun
    /// again, whatever the policy says of unknown outcomes: what the former one has not committed never happened,
    /// and it cannot commit any more. A server error frees the key, unless its class is set otherwise.
    ///
    /// A handler that has an effect elsewhere breaks this promise: that effect may happen twice. One that needs no
    /// transaction (a refusal of a malformed request) returns its response as on any other route.
    ///
    /// The store of the engine must be in the database that the transactions are in.
    pub fn with_effects_in_transaction(mut self) -> Self {
        self.route.effects = Effects::InTransaction;
        self
    }

    /// Sets whether a PUT, PATCH or DELETE must have a precondition such as `If-Match`.
    pub fn with_precondition(mut self, rule: PreconditionRule) -> Self {
        self.route.precondition = rule;
        self
    }

    /// Sets what happens when the store cannot be reached.
    pub fn with_on_store_failure(mut self, rule: OnStoreFailure) -> Self {
        self.route.on_store_failure = rule;
        self
    }

    /// Checks everything and builds the route. Fails if a value is out of its bounds, and says which.
    pub fn build(self) -> Result<Route> {
        let mut route = self.route;
        if route.identity.scope.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a route needs a source of its scope; Auto is the default",
            ));
        }
        if route.record_wait > WAIT_MAX {
            let detail =
                format!("an answer cannot wait {:?} for its receipt; at most 1 hour", route.record_wait);
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        route.former.retain(|former| *former != route.identity);
        let mut seen = Vec::new();
        route.former.retain(|former| {
            let new = !seen.contains(former);
            if new {
                seen.push(former.clone());
            }
            new
        });
        if let Some(characters) = self.key_length_min {
            route.shape = route.shape.with_length_min(characters)?;
        }
        if let Some(pattern) = &self.key_pattern {
            route.shape = route.shape.with_pattern(pattern)?;
        }
        for (class, retention) in self.retentions {
            route.actions.keep(class, checked(retention)?);
        }
        for (status, retention) in self.status_retentions {
            route.actions.keep_status(status, checked(retention)?);
        }
        for (name, status) in self.statuses {
            let name = problem_name(&name, status)?;
            route.statuses.retain(|(other, _)| *other != name);
            route.statuses.push((name, status));
        }
        // Where effects are in the transaction, whatever failed has rolled them back.
        if route.effects == Effects::InTransaction {
            route.actions.default_class(StatusClass::ServerError, Action::Retry);
            route.actions.on_answer_lost(Action::Retry);
        }
        // Where effects are in the transaction nothing is unknown; what is reconciled is held meanwhile.
        let rule = match (route.effects, &route.reconciler) {
            (Effects::InTransaction, _) => OnUnknown::Retry,
            (Effects::Anywhere, Some(_)) => OnUnknown::Hold,
            (Effects::Anywhere, None) => return Ok(route),
        };
        if route.policy.on_unknown() != rule {
            route.policy = Arc::new(route.policy.to_builder().with_on_unknown(rule).build()?);
        }
        Ok(route)
    }
}

/// A retention within the same bounds as everywhere.
fn checked(retention: Retention) -> Result<Retention> {
    Policy::http().to_builder().with_retention(retention).build().map(|_| retention)
}

/// The name of a problem that exists, if a refusal may have this status.
fn problem_name(name: &str, status: StatusCode) -> Result<&'static str> {
    let Some(name) = Problem::NAMES.into_iter().find(|known| *known == name) else {
        let detail = format!("there is no problem {name:?}; there are {}", Problem::NAMES.join(", "));
        return Err(Error::new(ErrorKind::Invalid, detail));
    };
    if !(status.is_client_error() || status.is_server_error()) {
        let detail = format!("{name} cannot be answered with {status}: a refusal is no success");
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    Ok(name)
}
