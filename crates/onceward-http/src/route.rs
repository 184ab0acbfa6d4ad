//! The idempotency contract of one route: which requests are guarded, and how.

mod builder;
mod getters;
mod scopes;

pub use builder::RouteBuilder;
pub(crate) use getters::verdict;

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use onceward::Policy;

use crate::action::Actions;
use crate::cors::AllowedOrigins;
use crate::fingerprint;
use crate::identity::Identity;
use crate::key::KeyShape;
use crate::key_source::KeyFrom;
use crate::precondition::PreconditionRule;
use crate::reconcile::Reconciler;
use crate::same_request::SameRequest;
use crate::shedding::Shedder;
use crate::snapshot::Omitted;
use crate::webhook::Receiver;

/// How long an answer waits for a store that is away at that moment: longer than a failover takes to be noticed, and
/// shorter than the patience of most clients.
const RECORD_WAIT: Duration = Duration::from_secs(2);
/// A client that reads nothing for this long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a guarded request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRule {
    /// Without one it is refused.
    Required,
    /// Without one it passes untouched.
    Optional,
    /// Keys are not read.
    Ignored,
}

impl KeyRule {
    /// The name, as it is in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Ignored => "ignored",
        }
    }
}

/// The treatment of a guarded request when the store cannot be reached and nothing is known of its intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// A refusal, `store-unavailable`: nothing happens.
    Refuse,
    /// It is passed on without a guard, as if it had no key: a retry may have its effect a second time.
    /// The answer says so in `Onceward-Unguarded`, and it is counted. Only where the claim certainly did
    /// not reach the store and no receipt of the intent was seen.
    PassUnguarded,
}

impl OnStoreFailure {
    /// Its name in publications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::PassUnguarded => "pass-unguarded",
        }
    }
}

/// The idempotency contract of one route: which requests are guarded, and how. The default is the IETF profile: keys
/// required on POST and PATCH, answers kept for 24 hours, duplicates wait, an unknown outcome is held.
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
    pub(crate) key_from: KeyFrom,
    pub(crate) shape: KeyShape,
    pub(crate) methods: Vec<Method>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) identity: Identity,
    /// Former identities under which receipts of this route may still exist.
    pub(crate) former: Vec<Identity>,
    pub(crate) fingerprint: fingerprint::Rules,
    pub(crate) request_bytes_max: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) omitted: Omitted,
    pub(crate) record_wait: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) actions: Actions,
    pub(crate) statuses: Vec<(&'static str, StatusCode)>,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) reconciler: Option<Arc<Reconciler>>,
    pub(crate) effects: Effects,
    pub(crate) precondition: PreconditionRule,
    /// Shared by all routes that are made of this one.
    pub(crate) shedder: Option<Arc<Shedder>>,
    pub(crate) allowed_origins: Option<AllowedOrigins>,
    pub(crate) same_request: Option<SameRequest>,
    /// The operations that an undo on this route may close.
    pub(crate) closes: Vec<String>,
    pub(crate) webhook: Option<Receiver>,
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
            key_from: KeyFrom::default(),
            shape: KeyShape::default(),
            methods: vec![Method::POST, Method::PATCH],
            policy: default_policy(),
            identity: Identity::default(),
            former: Vec::new(),
            fingerprint: fingerprint::Rules::default(),
            request_bytes_max: 1 << 20,
            response_bytes_max: 256 << 10,
            omitted: Omitted::default(),
            record_wait: RECORD_WAIT,
            write_timeout: WRITE_TIMEOUT,
            actions: Actions::default(),
            statuses: Vec::new(),
            on_store_failure: OnStoreFailure::Refuse,
            reconciler: None,
            effects: Effects::Anywhere,
            precondition: PreconditionRule::default(),
            shedder: None,
            allowed_origins: None,
            same_request: None,
            closes: Vec::new(),
            webhook: None,
        }
    }
}

fn default_policy() -> Arc<Policy> {
    let policy = Policy::http().to_builder().with_late_effect_max(Route::LATE_EFFECT_MAX).build();
    Arc::new(policy.expect("a minute is within the bounds"))
}

impl Route {
    /// How long what a run has sent can still take effect after the end of its lease, where neither the route nor its policy
    /// says it. A run ends with its process, but the calls that it has made may go on elsewhere.
    pub const LATE_EFFECT_MAX: Duration = Duration::from_secs(60);

    /// A builder that starts from the default route.
    pub fn builder() -> RouteBuilder {
        Self::default().to_builder()
    }

    /// Whether anything is to be checked of a request without a key.
    pub(crate) fn checks_keyless(&self) -> bool {
        self.precondition != PreconditionRule::Optional || self.shedder.is_some() || !self.closes.is_empty()
    }

    /// A builder that starts from this route, to change some of it.
    pub fn to_builder(&self) -> RouteBuilder {
        RouteBuilder::from(self.clone())
    }
}
