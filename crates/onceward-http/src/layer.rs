//! The tower layer that makes a service idempotent, and its service.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use onceward::Onceward;
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::Admission;
use crate::answer;
use crate::body::{BoxError, ResponseBody};
use crate::fingerprint::Secrets;
use crate::guard::{self, CallerParts};
use crate::headers::IDEMPOTENCY_KEY;
use crate::metrics::Metrics;
use crate::request_body::BodyReader;
use crate::request_fields::RequestFields;
use crate::response_future::{RareParts, ResponseFuture};
use crate::route::{KeyRule, Route};

/// Makes the requests of the service behind it idempotent: a retry with the same `Idempotency-Key` gets the recorded
/// response. See [`Route`] for what can be set.
///
/// ```
/// # use onceward_http::{OncewardLayer, Route};
/// # fn example(onceward: onceward::Onceward, secret: [u8; 32]) -> axum::Router {
/// axum::Router::new()
///     .route("/charges", axum::routing::post(async || "charged"))
///     .layer(OncewardLayer::new(onceward, secret, Route::default()))
/// # }
/// ```
///
/// A handler has the [`Lease`](onceward::Lease) of its run among the extensions of the request: its fence,
/// child keys for downstream calls, and steps. Without a guard there is none, so ask for an `Option` where
/// keys are optional.
///
/// ```
/// # use axum::Extension; use onceward::Lease;
/// async fn charge(Extension(lease): Extension<Lease>) -> String {
///     let key = lease.child("provider").expect("a short label");
///     format!("charged with {key} under fence {}", lease.fence())
/// }
/// # let _: axum::routing::MethodRouter = axum::routing::post(charge);
/// ```
#[derive(Clone, Debug)]
pub struct OncewardLayer {
    shared: Arc<LayerState>,
}

/// What all clones of a service have in common.
#[derive(Clone, Debug)]
pub(crate) struct LayerState {
    pub(crate) onceward: Onceward,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) route: Arc<Route>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) admission: Arc<Admission>,
}

impl OncewardLayer {
    /// A layer over an engine. The secrets key the hashes of scopes and bodies: keep them for as long as receipts
    /// are kept, and use the same ones in all processes that share a store.
    ///
    /// While several secrets are listed, an intent has a receipt under each of them, so that any two
    /// processes that share one agree on what was done. To rotate: add the new secret behind the old one
    /// everywhere, then put it in front everywhere, then take the old one off once the receipts from
    /// before are past their retention and no unknown outcome is left of them. Child keys, steps and fences are those
    /// of the oldest receipt of an intent: a retry has the same ones, whichever secret is in front.
    pub fn new(onceward: Onceward, secrets: impl Into<Secrets>, route: impl Into<Arc<Route>>) -> Self {
        let (secrets, route) = (Arc::new(secrets.into()), route.into());
        let (metrics, admission) = (Arc::default(), Arc::default());
        Self { shared: Arc::new(LayerState { onceward, secrets, route, metrics, admission }) }
    }

    /// Sets the counters, which the layers of all routes of one process may share.
    pub fn with_metrics(mut self, metrics: impl Into<Arc<Metrics>>) -> Self {
        self.shared = Arc::new(LayerState { metrics: metrics.into(), ..LayerState::clone(&self.shared) });
        self
    }

    /// Sets the limits of running intents, which the layers of all routes of one process may share.
    pub fn with_admission(mut self, admission: impl Into<Arc<Admission>>) -> Self {
        self.shared = Arc::new(LayerState { admission: admission.into(), ..LayerState::clone(&self.shared) });
        self
    }
}

impl LayerState {
    /// Whether the layer guards this request, as far as its head says; otherwise counts it as not guarded.
    fn guards<I>(&self, request: &Request<I>, fields: RequestFields) -> bool {
        let Self { route, metrics, .. } = self;
        if !route.methods.contains(request.method()) {
            metrics.unguarded_methods.one();
            return false;
        }
        let guarded = match (route.key, route.key_from.field()) {
            (KeyRule::Required, _) | (KeyRule::Optional, None) => true,
            (KeyRule::Optional, Some(field)) if *field == IDEMPOTENCY_KEY => fields.has(RequestFields::KEY),
            (KeyRule::Optional, Some(field)) => request.headers().contains_key(field),
            (KeyRule::Ignored, _) => false,
        };
        if !guarded {
            metrics.keyless.one();
        }
        guarded
    }
}

impl<S> Layer<S> for OncewardLayer {
    type Service = OncewardService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        OncewardService { inner, shared: self.shared.clone() }
    }
}

/// The service that [`OncewardLayer`] makes.
#[derive(Clone, Debug)]
pub struct OncewardService<S> {
    inner: S,
    shared: Arc<LayerState>,
}

impl<S, I, B> Service<Request<I>> for OncewardService<S>
where
    S: Service<Request<I>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    I::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, I, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let fields = RequestFields::of(request.headers());
        let allowed = self.shared.route.allowed_origins.as_ref();
        let rare = fields.has(RequestFields::ORIGIN).then(|| RareParts::page(&request, allowed));
        if self.shared.guards(&request, fields) {
            return self.call_guarded(request, fields, rare);
        }
        if self.shared.route.checks_keyless() {
            return self.call_checked(request, fields, rare);
        }
        ResponseFuture::pass(self.inner.call(request), rare)
    }
}

// Functions of their own: what they need must not be paid for by a request that is passed on.
impl<S> OncewardService<S> {
    #[inline(never)]
    fn call_guarded<I, B>(
        &mut self,
        request: Request<I>,
        fields: RequestFields,
        rare: Option<Box<RareParts>>,
    ) -> ResponseFuture<S, I, B>
    where
        S: Service<Request<I>, Response = Response<B>> + Clone,
        I: Body<Data = Bytes>,
    {
        let (in_flight, ids) = match guard::admit(&self.shared, &request, fields) {
            Ok(admitted) => admitted,
            Err(problem) => return ResponseFuture::refused(answer::refuse(&self.shared, problem), rare),
        };
        // The service that was polled ready runs the request; the clone must be polled again.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::reading(BodyReader::new(in_flight, ready, request, ids), rare)
    }

    #[inline(never)]
    fn call_checked<I, B>(
        &mut self,
        request: Request<I>,
        fields: RequestFields,
        mut rare: Option<Box<RareParts>>,
    ) -> ResponseFuture<S, I, B>
    where
        S: Service<Request<I>, Response = Response<B>>,
    {
        let (uri, headers, extensions) = (request.uri(), request.headers(), request.extensions());
        let from = CallerParts { uri, headers, extensions, fields };
        match guard::admit_keyless(&self.shared, request.method(), from) {
            Ok(permit) => {
                RareParts::add_permit(&mut rare, permit);
                ResponseFuture::pass(self.inner.call(request), rare)
            }
            Err(problem) => ResponseFuture::refused(answer::refuse(&self.shared, problem), rare),
        }
    }
}
