//! The builder of a route. Setters take any value; [`RouteBuilder::build`] checks all of them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use onceward::{Error, ErrorKind, OnUnknown, Policy, Result, Retention, WAIT_MAX};

use super::{Effects, KeyRule, OnStoreFailure, Route};
use crate::action::{Action, StatusClass};
use crate::closes;
use crate::cors::AllowedOrigins;
use crate::fingerprint;
use crate::identity::Identity;
use crate::key::KeyForm;
use crate::key_source::KeyFrom;
use crate::operation::Operation;
use crate::precondition::PreconditionRule;
use crate::problem::Problem;
use crate::reconcile::{Reconcile, Reconciler};
use crate::same_request::SameRequest;
use crate::scope::{OnAnonymous, ScopeFrom};
use crate::shedding::{Shedder, Shedding};
use crate::webhook::Receiver;

/// Builds a [`Route`]. See [`Route::builder`] and [`Route::to_builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder changes nothing until `build` is called"]
pub struct RouteBuilder {
    route: Route,
    // Not checked yet.
    shedding: Option<Shedding>,
    late_effect_max: Option<Duration>,
    key_length_min: Option<usize>,
    key_pattern: Option<String>,
    retentions: Vec<(StatusClass, Retention)>,
    status_retentions: Vec<(StatusCode, Retention)>,
    statuses: Vec<(String, StatusCode)>,
}

impl From<Route> for RouteBuilder {
    fn from(route: Route) -> Self {
        // A limit of its own: what the new route measures says nothing about the other one.
        let shedding = route.shedder.as_ref().map(|shedder| shedder.shedding());
        Self {
            route,
            shedding,
            late_effect_max: None,
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

    /// Sets how long what a run has sent can still take effect after its lease has ended: the longest time limit of the
    /// calls that the handler makes. Until then a statement that it did not happen is refused, except by force. Without
    /// this it is the policy's, and where that says zero [`Route::LATE_EFFECT_MAX`]; zero where all effects are in the
    /// transaction.
    pub fn with_late_effect_max(mut self, late: Duration) -> Self {
        self.late_effect_max = Some(late);
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

    /// Sets how long a client may read nothing of a response that is too large to be kept, and is sent while it arrives.
    /// The time for all of it is this long and one second more per 32 KiB. Then the client is cut off, the rest is read from
    /// the service, and the receipt is written. The default is 30 seconds; from 1 ms to 1 hour.
    pub fn with_write_timeout(mut self, wait: Duration) -> Self {
        self.route.write_timeout = wait;
        self
    }

    /// Adds a response field that is never stored.
    pub fn with_omitted_field(mut self, name: HeaderName) -> Self {
        self.route.omitted = self.route.omitted.with_field(name);
        self
    }

    /// Stores and replays `Set-Cookie` like any other field. By default it is not: a cookie is made
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

    /// Notices the same request under another key within a window: a client that makes a new key for every try. By
    /// default it is not. It costs one short-lived record per request, and one more where the caller is known.
    pub fn with_same_request(mut self, rule: SameRequest) -> Self {
        self.route.same_request = Some(rule);
        self
    }

    /// Allows pages of these origins to use this route: preflights then name `Idempotency-Key`, and refusals and replays
    /// carry the fields of CORS. A service that does CORS itself keeps its own answers.
    pub fn with_allowed_origins(mut self, origins: AllowedOrigins) -> Self {
        self.route.allowed_origins = Some(origins);
        self
    }

    /// Refuses new work, before it is claimed, while the service takes too long. By default nothing is. The limit is
    /// that of this route: a slow endpoint with a route of its own sheds none of the others.
    pub fn with_shedding(mut self, shedding: Shedding) -> Self {
        self.shedding = Some(shedding);
        self
    }

    /// Verifies the requests of this route as webhooks, with the sender's event id as key. Start from
    /// [`Route::preset`]`("webhook")`.
    pub fn with_webhook(mut self, receiver: Receiver) -> Self {
        self.route.key = KeyRule::Required;
        self.route.key_from = KeyFrom::Event(receiver.scheme());
        self.route.webhook = Some(receiver);
        self
    }

    /// Sets the operations, such as `POST /charges`, that an undo on this route may close with `Onceward-Closes`: the
    /// request that it names is closed before the undo runs, if it has not run. Callers close only what is in their own
    /// scope, and never in one that several callers have.
    pub fn with_closes(mut self, operations: impl IntoIterator<Item: Into<String>>) -> Self {
        self.route.closes = operations.into_iter().map(Into::into).collect();
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
        if let Some(receiver) = &route.webhook {
            check_webhook(&route, receiver)?;
        }
        for operation in &route.closes {
            closes::check_operation(operation).map_err(|why| Error::new(ErrorKind::Invalid, why))?;
        }
        if !route.closes.is_empty() && route.identity.scope == [ScopeFrom::Shared] {
            let detail = "callers that share one scope cannot close each other's requests; set a scope that names them";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        if route.record_wait > WAIT_MAX {
            let detail =
                format!("an answer cannot wait {:?} for its receipt; at most 1 hour", route.record_wait);
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        if !(Duration::from_millis(1)..=WAIT_MAX).contains(&route.write_timeout) {
            let detail = format!("write_timeout {:?} is out of range: 1 ms to 1 hour", route.write_timeout);
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
        if let Some(rule) = &route.same_request {
            rule.check()?;
        }
        if let Some(shedding) = self.shedding {
            shedding.check()?;
            route.shedder = Some(Shedder::new(shedding));
        }
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
            (Effects::Anywhere, None) => route.policy.on_unknown(),
        };
        let late = match (self.late_effect_max, route.effects, route.policy.late_effect_max()) {
            (Some(late), ..) => late,
            // What was not committed never happens.
            (None, Effects::InTransaction, _) => Duration::ZERO,
            (None, Effects::Anywhere, Duration::ZERO) => Route::LATE_EFFECT_MAX,
            (None, Effects::Anywhere, late) => late,
        };
        if (route.policy.on_unknown(), route.policy.late_effect_max()) != (rule, late) {
            let policy = route.policy.to_builder().with_on_unknown(rule).with_late_effect_max(late);
            route.policy = Arc::new(policy.build()?);
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

fn check_webhook(route: &Route, receiver: &Receiver) -> Result<()> {
    let refuse = |detail: &str| Err(Error::new(ErrorKind::Invalid, detail.to_owned()));
    if route.key != KeyRule::Required || route.key_from != KeyFrom::Event(receiver.scheme()) {
        return refuse(
            "the key of a verified webhook is the sender's event id: `key` and `key_from` cannot be set",
        );
    }
    if receiver.store_first().is_some() && route.identity.scope != [ScopeFrom::Shared] {
        return refuse(
            "events that are stored first have one scope, \"shared\": their senders are verified by signatures",
        );
    }
    if let Some(store_first) = receiver.store_first()
        && !store_first.status().is_success()
    {
        return refuse(&format!("an event is acknowledged with 2xx, not with {}", store_first.status()));
    }
    if receiver.store_first().is_some() && route.policy.on_unknown() == OnUnknown::Hold {
        return refuse(
            "events that are stored first are delivered at least once, so unknown outcomes cannot be held",
        );
    }
    Ok(())
}
