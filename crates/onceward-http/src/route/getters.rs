//! The getters of a route, for the guard and for the published policy.

use std::sync::Arc;

use http::{HeaderName, Method, Response, StatusCode};
use onceward::{OnFailure, Outcome, Policy, Retention, Verdict};

use super::{Effects, KeyRule, OnStoreFailure, Route};
use crate::action::{Action, StatusClass};
use crate::fingerprint;
use crate::key::KeyShape;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::response_outcome;
use crate::scope::{OnAnonymous, ScopeFrom};

impl Route {
    /// Whether a key is required.
    pub fn key(&self) -> KeyRule {
        self.key
    }

    /// Which keys are taken.
    pub fn key_shape(&self) -> &KeyShape {
        &self.shape
    }

    /// Which methods are guarded.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The contract: lease, retention, duplicates, unknown outcomes.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Where the scope comes from.
    pub fn scope(&self) -> &ScopeFrom {
        &self.scope
    }

    /// What a request gets that does not say who asks.
    pub fn on_anonymous(&self) -> OnAnonymous {
        self.on_anonymous.unwrap_or_else(|| self.scope.on_anonymous())
    }

    /// How the operation is named.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// What of a request its fingerprint is made of.
    pub fn fingerprint(&self) -> &fingerprint::Rules {
        &self.fingerprint
    }

    /// The largest request body, in bytes.
    pub fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }

    /// The largest response body that is kept, in bytes.
    pub fn response_bytes_max(&self) -> usize {
        self.response_bytes_max
    }

    /// Every response field that is not stored, besides those that `Connection` names.
    pub fn omitted_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.omitted.fields()
    }

    /// The outcome from which a response is replayed: for work that commits the outcome of a request itself, for
    /// example with [`Lease::transact`](onceward::Lease::transact). Fields that are never replayed are left out, and
    /// so is a body over [`response_bytes_max`](Self::response_bytes_max).
    ///
    /// ```
    /// use onceward_http::{Route, snapshot};
    ///
    /// let response = http::Response::builder().status(201).body("charged")?;
    /// let outcome = Route::default().outcome(&response);
    /// let replayed = snapshot::decode(outcome.body()).expect("the bytes of a response");
    /// assert_eq!((replayed.status().as_u16(), &replayed.body()[..]), (201, &b"charged"[..]));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn outcome<B: AsRef<[u8]>>(&self, response: &Response<B>) -> Outcome {
        response_outcome::outcome(self, response)
    }

    /// What a response with this status means for its key.
    pub fn action(&self, status: StatusCode) -> Action {
        self.under_policy(self.actions.of(status), verdict(status))
    }

    /// What a response of this class means for its key, unless its status is set by itself.
    pub fn class_action(&self, class: StatusClass) -> Action {
        self.under_policy(self.actions.of_class(class), class_verdict(class))
    }

    /// The statuses that are set by themselves.
    pub fn status_actions(&self) -> impl Iterator<Item = (StatusCode, Action)> {
        let statuses = self.actions.statuses().iter();
        statuses.map(|(status, action)| (*status, self.under_policy(*action, verdict(*status))))
    }

    /// How long a response of this class is kept, if it is.
    pub fn retention(&self, class: StatusClass) -> Retention {
        self.own_retention(class).unwrap_or_else(|| self.policy.retention(class_verdict(class)))
    }

    /// How long a response of this class is kept, where the policy does not decide it.
    pub(crate) fn own_retention(&self, class: StatusClass) -> Option<Retention> {
        self.actions.kept(class)
    }

    /// The status with which a problem is answered.
    pub fn status_of(&self, problem: &Problem) -> StatusCode {
        self.mapped(problem.name()).unwrap_or_else(|| problem.status())
    }

    /// The problems that are answered with another status than usual.
    pub fn problem_statuses(&self) -> &[(&'static str, StatusCode)] {
        &self.statuses
    }

    /// What happens when the store cannot be reached.
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// Whether unknown outcomes are reconciled.
    pub fn is_reconciled(&self) -> bool {
        self.reconciler.is_some()
    }

    /// Whether all effects are in the transaction that commits the receipt.
    pub fn has_effects_in_transaction(&self) -> bool {
        self.effects == Effects::InTransaction
    }

    fn mapped(&self, name: &str) -> Option<StatusCode> {
        self.statuses.iter().find(|(mapped, _)| *mapped == name).map(|(_, status)| *status)
    }

    /// A policy that retries failures keeps none of them, regardless of the table.
    fn under_policy(&self, action: Action, verdict: Verdict) -> Action {
        match (action, verdict, self.policy.on_failure()) {
            (Action::Replay, Verdict::Failed, OnFailure::Retry) => Action::Retry,
            _ => action,
        }
    }
}

/// Whether a status means success.
pub(crate) fn verdict(status: StatusCode) -> Verdict {
    class_verdict(StatusClass::of(status))
}

fn class_verdict(class: StatusClass) -> Verdict {
    match class {
        StatusClass::Success | StatusClass::Redirection => Verdict::Succeeded,
        StatusClass::ClientError | StatusClass::ServerError => Verdict::Failed,
    }
}
