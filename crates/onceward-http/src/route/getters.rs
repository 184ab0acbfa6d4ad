//! The getters of a route, for the guard and for the published policy.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderName, Method, Response, StatusCode};
use onceward::{OnFailure, Outcome, Policy, Prior, Retention, Verdict};

use super::{Effects, KeyRule, OnStoreFailure, Route};
use crate::action::{Action, StatusClass};
use crate::cors::AllowedOrigins;
use crate::fingerprint::{self, Caller};
use crate::headers::IDEMPOTENCY_KEY;
use crate::identity::Identity;
use crate::key::KeyShape;
use crate::key_source::KeyFrom;
use crate::operation::Operation;
use crate::precondition::PreconditionRule;
use crate::problem::Problem;
use crate::response_outcome;
use crate::same_request::SameRequest;
use crate::scope::{OnAnonymous, ScopeFrom};
use crate::shedding::Shedding;
use crate::webhook::Receiver;

impl Route {
    /// Returns whether a key is required.
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

    /// Returns whether a PUT, PATCH or DELETE must have a precondition.
    pub fn precondition(&self) -> PreconditionRule {
        self.precondition
    }

    /// How this route receives webhooks, if it does.
    pub fn webhook(&self) -> Option<&Receiver> {
        self.webhook.as_ref()
    }

    /// The operations that an undo on this route may close.
    pub fn closes(&self) -> &[String] {
        &self.closes
    }

    /// The contract: lease, retention, duplicates, unknown outcomes.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Where the scope comes from; several sources count together.
    pub fn scope(&self) -> &[ScopeFrom] {
        &self.identity.scope
    }

    /// Returns the treatment of a request that names no caller. Only [`ScopeFrom::Auto`] shares by itself: a service
    /// that needs no credentials has one tenant.
    pub fn on_anonymous(&self) -> OnAnonymous {
        let Identity { scope, on_anonymous, .. } = &self.identity;
        on_anonymous.unwrap_or_else(|| {
            let shares = scope.iter().all(|source| matches!(source, ScopeFrom::Auto | ScopeFrom::Shared));
            if shares { OnAnonymous::Share } else { OnAnonymous::Refuse }
        })
    }

    /// How the operation is named.
    pub fn operation(&self) -> &Operation {
        &self.identity.operation
    }

    /// The terms by which this route names its intents.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The terms under which receipts of this route may still exist.
    pub fn former_identities(&self) -> &[Identity] {
        &self.former
    }

    /// Where the key comes from.
    pub fn key_from(&self) -> &KeyFrom {
        &self.key_from
    }

    /// Whether a field counts for the scope or the fingerprint of a request.
    pub(crate) fn counts(&self, name: &HeaderName, caller: Caller) -> bool {
        [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH, HOST, IDEMPOTENCY_KEY].contains(name)
            || self.key_from.field() == Some(name)
            || self.fingerprint.headers().contains(name)
            || self.identity.scope.iter().any(|source| source.reads(name))
            || caller == Caller::Anonymous && self.fingerprint.may_name_somebody(name)
    }

    /// Returns the parts of a request that its fingerprint covers.
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

    /// How long an answer waits for its receipt if the store is away and unknown outcomes are held.
    pub fn record_wait(&self) -> Duration {
        self.record_wait
    }

    /// How long a client may read nothing of a response that is sent while it arrives.
    pub fn write_timeout(&self) -> Duration {
        self.write_timeout
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

    /// Returns the effect of a response with this status on its key, on a run that nothing is known of before.
    pub fn action(&self, status: StatusCode) -> Action {
        self.under_policy(self.actions.of(status), verdict(status))
    }

    /// What a response means for its key on a run of which this is known before.
    pub(crate) fn action_of_run(&self, status: StatusCode, retry_after: bool, prior: Prior) -> Action {
        self.under_policy(self.actions.of_run(status, retry_after, prior), verdict(status))
    }

    /// Returns the effect of a response of this class on its key, unless its status is named.
    pub fn class_action(&self, class: StatusClass) -> Action {
        self.under_policy(self.actions.of_class(class), class_verdict(class))
    }

    /// The statuses that do not go by their class: named by the contract, or set by themselves. Those from 520 to 599
    /// are listed only where they are set; see [`Route::answer_lost_action`] for the others.
    pub fn status_actions(&self) -> impl Iterator<Item = (StatusCode, Action)> {
        let statuses = self.actions.statuses().into_iter();
        statuses.map(|(status, action)| (status, self.under_policy(action, verdict(status))))
    }

    /// Returns the effect of a status from 520 to 599 on its key, unless that status is set individually.
    pub fn answer_lost_action(&self) -> Action {
        self.under_policy(self.actions.of_answer_lost(), Verdict::Failed)
    }

    /// Returns whether a 409 with `Retry-After` frees the key, whatever one without it means.
    pub fn frees_conflict_with_retry_after(&self) -> bool {
        self.actions.frees_conflict_with_retry_after()
    }

    /// How long a response of this class is kept, if it is.
    pub fn retention(&self, class: StatusClass) -> Retention {
        self.actions.kept(class).unwrap_or_else(|| self.policy.retention(class_verdict(class)))
    }

    /// How long a response with this status is kept, where the policy does not decide it.
    pub(crate) fn own_retention(&self, status: StatusCode) -> Option<Retention> {
        self.actions.kept_status(status)
    }

    /// How long a response with this status is kept, if it is.
    pub fn retention_of(&self, status: StatusCode) -> Retention {
        self.own_retention(status).unwrap_or_else(|| self.policy.retention(verdict(status)))
    }

    /// The status with which a problem is answered.
    pub fn status_of(&self, problem: &Problem) -> StatusCode {
        self.mapped(problem.name()).unwrap_or_else(|| problem.status())
    }

    /// The problems that are answered with another status than usual.
    pub fn problem_statuses(&self) -> &[(&'static str, StatusCode)] {
        &self.statuses
    }

    /// The treatment of requests while the store cannot be reached.
    pub fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// The window in which the same request under another key is noticed; `None` if it is not.
    pub fn same_request(&self) -> Option<SameRequest> {
        self.same_request
    }

    /// The origins whose pages may use this route; `None` if that is left to the service.
    pub fn allowed_origins(&self) -> Option<&AllowedOrigins> {
        self.allowed_origins.as_ref()
    }

    /// When new work is shed; `None` if it is not.
    pub fn shedding(&self) -> Option<Shedding> {
        self.shedder.as_ref().map(|shedder| shedder.shedding())
    }

    /// Where new work is shed: how many intents of this route may run at once now, and how many do.
    pub fn shedding_state(&self) -> Option<(usize, usize)> {
        self.shedder.as_ref().map(|shedder| shedder.state())
    }

    /// Returns whether unknown outcomes are reconciled.
    pub fn is_reconciled(&self) -> bool {
        self.reconciler.is_some()
    }

    /// Returns whether all effects are in the transaction that commits the receipt.
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
