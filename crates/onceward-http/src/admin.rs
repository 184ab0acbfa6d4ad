//! Routers for operators and monitors of a service that uses idempotency keys: health, metrics, the published
//! policy, and the receipts API. Mount them in a service of your own; `onceward proxy` and `onceward serve` mount
//! the same ones.
//!
//! ```text
//! /healthz  /readyz                 Admin::health_router     is the process alive, may traffic come
//! /metrics                          Admin::metrics_router    counters as Prometheus text
//! /v1/…  /openapi.json              Admin::receipts_router   claim, show, list and settle receipts
//! /.well-known/idempotency          well_known_router        the policy of each route, for clients
//! ```
//!
//! Health, metrics and the policy show no key and no scope. The receipts API can settle what happened to a payment,
//! so it always needs an [`AdminAuth`]: a token, or a client on this machine.
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::Router;
//! use onceward::Onceward;
//! use onceward_http::admin::{Admin, AdminAuth, well_known_router};
//! use onceward_http::publication::Document;
//! use onceward_http::{Metrics, Route};
//!
//! # fn main() -> onceward::Result<()> {
//! # let onceward = Onceward::builder(Arc::new(onceward_stores::MemoryStore::new())).accept_volatile().build()?;
//! // The engine, the metrics and the routes of the layers that guard the service's own paths.
//! let (metrics, routes) = (Arc::new(Metrics::new()), [("/charges".to_owned(), Arc::new(Route::default()))]);
//!
//! let admin = Admin::new(onceward).with_layer_metrics(metrics);
//! let auth = AdminAuth::token("0123456789abcdef-from-your-secret-store")?;
//! let app: Router = Router::new()
//!     .merge(admin.health_router())
//!     .merge(admin.metrics_router())
//!     .merge(well_known_router(Document::new(&routes)))
//!     .nest("/admin", admin.receipts_router(auth));
//! # Ok(())
//! # }
//! ```

mod api;
mod audit;
mod auth;
#[doc(hidden)]
pub mod extend;
mod health;
mod json;
mod metrics;
mod problem;
mod unknown_gauge;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::Uri;
use onceward::Onceward;
use utoipa_axum::router::OpenApiRouter;

#[doc(hidden)]
pub use api::shape;
pub use auth::AdminAuth;
pub use health::Readiness;

use crate::metrics::Metrics;
use crate::publication::{self, Document};
use problem::Problem;

/// The facts about a process that the routers report. Make one, add what there is to tell, and take the routers from
/// it; they share its counters.
#[derive(Clone)]
pub struct Admin {
    onceward: Onceward,
    readiness: Arc<Readiness>,
    layer_metrics: Option<Arc<Metrics>>,
    more_metrics: Vec<Arc<WriteMetrics>>,
    settlements: Arc<metrics::Settlements>,
    unknown_gauge: Arc<unknown_gauge::UnknownGauge>,
    scopes_of: Option<Arc<ScopesOf>>,
    operator_routes: OpenApiRouter,
    started: SystemTime,
}

/// Appends metrics as Prometheus text.
type WriteMetrics = dyn Fn(&mut String) + Send + Sync;

/// The scopes that a request may have.
type ScopesOf = dyn Fn(&http::Request<()>) -> Vec<String> + Send + Sync;

impl Admin {
    /// Speaks for an engine. The process is ready while the engine's store answers.
    pub fn new(onceward: Onceward) -> Self {
        Self {
            onceward,
            readiness: Arc::default(),
            layer_metrics: None,
            more_metrics: Vec::new(),
            settlements: Arc::default(),
            unknown_gauge: Arc::default(),
            scopes_of: None,
            operator_routes: OpenApiRouter::new(),
            started: SystemTime::now(),
        }
    }

    /// Sets what has to be in order before traffic may come. Keep a clone of the `Arc` to
    /// [`drain`](Readiness::drain) at the end.
    pub fn with_readiness(mut self, readiness: impl Into<Arc<Readiness>>) -> Self {
        self.readiness = readiness.into();
        self
    }

    /// Adds the counters of the layers that guard requests to the metrics.
    pub fn with_layer_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.layer_metrics = Some(metrics);
        self
    }

    /// Adds metrics of the rest of the process. `write` appends Prometheus text; it may be called several times
    /// at once, and must not block.
    pub fn with_metrics(mut self, write: impl Fn(&mut String) + Send + Sync + 'static) -> Self {
        self.more_metrics.push(Arc::new(write));
        self
    }

    /// Sets how the scopes of a caller are computed from a request that carries its credentials (see
    /// [`Route::scopes_of`](crate::Route::scopes_of)), so that an operator can search by them.
    pub fn with_scopes_of(
        mut self,
        scopes_of: impl Fn(&http::Request<()>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.scopes_of = Some(Arc::new(scopes_of));
        self
    }

    /// `/healthz` and `/readyz`.
    pub fn health_router(&self) -> Router {
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .with_state(Arc::new(self.clone()))
    }

    /// `/metrics`.
    pub fn metrics_router(&self) -> Router {
        Router::new().route("/metrics", get(metrics::metrics)).with_state(Arc::new(self.clone()))
    }

    /// `/v1/…` and the document that describes it, `/openapi.json`. Requests that `auth` does not admit are
    /// refused with a problem (RFC 9457).
    pub fn receipts_router(&self, auth: AdminAuth) -> Router {
        let auth = Arc::new(auth);
        self.receipts(&auth).route_layer(middleware::from_fn_with_state(auth, check_origin))
    }

    /// Health, metrics and receipts as one service, for a listener of its own. Without a token, all of it is for
    /// this machine only. Unknown paths and methods are problems too.
    pub fn router(&self, auth: AdminAuth) -> Router {
        let auth = Arc::new(auth);
        Router::new()
            .merge(self.health_router())
            .merge(self.metrics_router())
            .merge(self.receipts(&auth))
            .fallback(async || Problem::NoSuchPath)
            .method_not_allowed_fallback(async || Problem::NoSuchMethod)
            .layer(middleware::from_fn_with_state(auth, check_origin))
    }

    fn receipts(&self, auth: &Arc<AdminAuth>) -> Router {
        let (api, document) = api::router(&Arc::new(self.clone()), auth);
        let document = document.to_json().expect("a document made of plain values is JSON");
        let document = async || ([(http::header::CONTENT_TYPE, "application/json")], document);
        Router::new().route("/openapi.json", get(document)).merge(api)
    }
}

/// `/.well-known/idempotency`: the policy of each route, for clients to read.
pub fn well_known_router(document: Document) -> Router {
    let document = Arc::new(document);
    let respond = async move |method: http::Method, uri: Uri| {
        document.respond(&method, uri.query()).map(axum::body::Body::from)
    };
    Router::new().route(publication::PATH, any(respond))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// Refuses requests that do not come from where they may come from.
async fn check_origin(State(auth): State<Arc<AdminAuth>>, request: Request, next: Next) -> Response {
    match auth.check_origin(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A key as it may stand in a log: enough to find the same one again, not enough to use it.
fn hashed(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex()[..12].to_owned()
}
