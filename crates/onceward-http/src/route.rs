//! The contract of one route: which requests are guarded, and what is promised for them.

mod facts;

pub(crate) use facts::verdict;

use std::sync::Arc;

use http::{HeaderName, Method, StatusCode};
use onceward::{Error, ErrorKind, OnUnknown, Policy, Result, Retention};

use crate::action::{Action, Actions, StatusClass};
use crate::fingerprint;
use crate::key::{KeyForm, KeyShape};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reconcile::{Reconcile, Reconciler};
use crate::scope::{OnAnonymous, ScopeFrom};
use crate::snapshot::Omitted;

/// Whether a guarded request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// Without one it is refused.
    Required,
    /// Without one it passes untouched.
    Optional,
    /// Keys are not looked at.
    Ignored,
}

/// What a guarded request gets when the store cannot be reached and nothing is known of its intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// A refusal, `store-unavailable`: nothing happens.
    Refuse,
    /// It is passed on without a guard, as if it had no key: a retry may have its effect a second time.
    /// The answer says so in `Onceward-Unguarded`, and it is counted. Only where the claim certainly did
    /// not reach the store and no receipt of the intent was seen.
    PassUnguarded,
}

/// What is promised for a route. The default is the IETF profile: keys required on POST and PATCH,
/// answers kept for 24 hours, duplicates wait, server errors free the key.
#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) key: KeyRule,
    pub(crate) shape: KeyShape,
    pub(crate) methods: Vec<Method>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) scope: ScopeFrom,
    pub(crate) on_anonymous: Option<OnAnonymous>,
    pub(crate) operation: Operation,
    pub(crate) fingerprint: fingerprint::Rules,
    pub(crate) request_bytes_max: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) omitted: Omitted,
    pub(crate) actions: Actions,
    pub(crate) statuses: Vec<(&'static str, StatusCode)>,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) reconciler: Option<Arc<Reconciler>>,
    pub(crate) effects: Effects,
}

/// Where the effects of a route's handler are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    Anywhere,
    /// In the transaction that commits the receipt.
    InTransaction,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            key: KeyRule::Required,
            shape: KeyShape::default(),
            methods: vec![Method::POST, Method::PATCH],
            policy: Arc::new(Policy::http()),
            scope: ScopeFrom::default(),
            on_anonymous: None,
            operation: Operation::default(),
            fingerprint: fingerprint::Rules::default(),
            request_bytes_max: 1 << 20,
            response_bytes_max: 256 << 10,
            omitted: Omitted::default(),
            actions: Actions::default(),
            statuses: Vec::new(),
            on_store_failure: OnStoreFailure::Refuse,
            reconciler: None,
            effects: Effects::Anywhere,
        }
    }
}

impl Route {
    /// Sets whether a key is required.
    pub fn key(mut self, rule: KeyRule) -> Self {
        self.key = rule;
        self
    }

    /// Sets how strictly keys are read.
    pub fn key_form(mut self, form: KeyForm) -> Self {
        self.shape = self.shape.form(form);
        self
    }

    /// Sets the fewest characters of a key.
    pub fn key_length_min(mut self, characters: usize) -> Result<Self> {
        self.shape = self.shape.length_min(characters)?;
        Ok(self)
    }

    /// Sets the regular expression that a key must match as a whole.
    pub fn key_pattern(mut self, pattern: &str) -> Result<Self> {
        self.shape = self.shape.pattern(pattern)?;
        Ok(self)
    }

    /// Sets which methods are guarded.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Sets the contract: lease, retention, duplicates, unknown outcomes.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self.with_rule_for_doubts()
    }

    /// Sets where the scope comes from.
    pub fn scope(mut self, scope: ScopeFrom) -> Self {
        self.scope = scope;
        self
    }

    /// Sets what a request gets that does not say who asks. Without this, the source of the scope decides.
    pub fn on_anonymous(mut self, rule: OnAnonymous) -> Self {
        self.on_anonymous = Some(rule);
        self
    }

    /// Sets how the operation is named.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }

    /// Sets what of a request its fingerprint is made of.
    pub fn fingerprint(mut self, rules: fingerprint::Rules) -> Self {
        self.fingerprint = rules;
        self
    }

    /// Sets the largest request body. It is read whole before the claim, so that it can be compared.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets the largest response body that is kept. A larger one is passed on and not replayed.
    pub fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }

    /// Adds a response field that is never stored.
    pub fn omit(mut self, name: HeaderName) -> Self {
        self.omitted.also(name);
        self
    }

    /// Has `Set-Cookie` stored and replayed like any other field. By default it is not: a cookie is made
    /// for whoever sent that one request.
    pub fn replay_cookies(mut self) -> Self {
        self.omitted.keep_cookies();
        self
    }

    /// Sets what a response with this status means for its key.
    pub fn on_status(mut self, status: StatusCode, action: Action) -> Self {
        self.actions.on_status(status, action);
        self
    }

    /// Sets what a response of this class means for its key, unless its status is set by itself.
    pub fn on_class(mut self, class: StatusClass, action: Action) -> Self {
        self.actions.on_class(class, action);
        self
    }

    /// Sets what a 5xx response means for its key.
    pub fn on_server_error(self, action: Action) -> Self {
        self.on_class(StatusClass::ServerError, action)
    }

    /// Sets how long a response of this class is kept, whatever the policy says.
    pub fn keep(mut self, class: StatusClass, retention: Retention) -> Result<Self> {
        // The same bounds as everywhere.
        Policy::http().keep(retention)?;
        self.actions.keep(class, retention);
        Ok(self)
    }

    /// Sets the status with which a problem is answered. Its type stays what it is.
    pub fn problem_status(mut self, name: &str, status: StatusCode) -> Result<Self> {
        let Some(name) = Problem::NAMES.into_iter().find(|known| *known == name) else {
            let detail = format!("there is no problem {name:?}; there are {}", Problem::NAMES.join(", "));
            return Err(Error::new(ErrorKind::Invalid, detail));
        };
        if !(status.is_client_error() || status.is_server_error()) {
            let detail = format!("{name} cannot be answered with {status}: a refusal is no success");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        self.statuses.retain(|(other, _)| *other != name);
        self.statuses.push((name, status));
        Ok(self)
    }

    /// Has unknown outcomes looked into. They are held meanwhile, whatever the policy says.
    pub fn reconcile(mut self, hook: impl Reconcile) -> Self {
        self.reconciler = Some(Arc::new(Reconciler::new(hook)));
        self.with_rule_for_doubts()
    }

    /// Says that all effects of the handler are in the transaction in which it commits its response
    /// ([`ResponseLease::transact`](crate::ResponseLease::transact)). A run that was cut short is then simply begun
    /// again, whatever the policy says of unknown outcomes: what the former one has not committed never happened,
    /// and it cannot commit any more.
    ///
    /// A handler that has an effect elsewhere breaks this promise: that effect may happen twice. One that needs no
    /// transaction (a refusal of a malformed request) returns its response as on any other route.
    ///
    /// The store of the engine must be in the database that the transactions are in.
    pub fn effects_in_transaction(mut self) -> Self {
        self.effects = Effects::InTransaction;
        self.with_rule_for_doubts()
    }

    /// Where effects are in the transaction there is no doubt; what is reconciled is held meanwhile.
    fn with_rule_for_doubts(mut self) -> Self {
        let rule = match (self.effects, &self.reconciler) {
            (Effects::InTransaction, _) => OnUnknown::Retry,
            (Effects::Anywhere, Some(_)) => OnUnknown::Hold,
            (Effects::Anywhere, None) => return self,
        };
        if self.policy.unknown_rule() != rule {
            self.policy = Arc::new(Policy::clone(&self.policy).on_unknown(rule));
        }
        self
    }

    /// Sets what happens when the store cannot be reached.
    pub fn on_store_failure(mut self, rule: OnStoreFailure) -> Self {
        self.on_store_failure = rule;
        self
    }
}
