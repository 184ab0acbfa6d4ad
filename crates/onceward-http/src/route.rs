//! The idempotency contract of one route: which requests are guarded, and how.

mod builder;
mod getters;

pub use builder::RouteBuilder;
pub(crate) use getters::verdict;

use std::sync::Arc;

use http::{Method, StatusCode};
use onceward::Policy;

use crate::action::Actions;
use crate::fingerprint;
use crate::key::KeyShape;
use crate::operation::Operation;
use crate::reconcile::Reconciler;
use crate::scope::{OnAnonymous, ScopeFrom};
use crate::snapshot::Omitted;

/// Whether a guarded request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// Without one it is refused.
    Required,
    /// Without one it passes untouched.
    Optional,
    /// Keys are not read.
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

/// The idempotency contract of one route: which requests are guarded, and how. The default is the IETF profile: keys
/// required on POST and PATCH, answers kept for 24 hours, duplicates wait, server errors free the key.
///
/// ```
/// use onceward_http::{KeyRule, Route};
///
/// let route = Route::builder().with_key(KeyRule::Optional).with_key_length_min(16).build()?;
/// assert_eq!(route.key(), KeyRule::Optional);
/// # Ok::<(), onceward::Error>(())
/// ```
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
    /// A builder that starts from the default route.
    pub fn builder() -> RouteBuilder {
        Self::default().to_builder()
    }

    /// A builder that starts from this route, to change some of it.
    pub fn to_builder(&self) -> RouteBuilder {
        RouteBuilder::from(self.clone())
    }
}
