//! The tower layer and its service.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use onceward::Onceward;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::future::ResponseFuture;
use crate::guard;
use crate::key::{self, BadKey};
use crate::problem::Problem;
use crate::route::{KeyRule, Route};

/// Makes the service behind it safe to retry. See [`Route`] for what can be set.
///
/// ```
/// # use onceward_http::{OncewardLayer, Route};
/// # fn example(onceward: onceward::Onceward, secret: [u8; 32]) -> axum::Router {
/// axum::Router::new()
///     .route("/charges", axum::routing::post(async || "charged"))
///     .layer(OncewardLayer::new(onceward, secret, Route::default()))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OncewardLayer {
    shared: Arc<Shared>,
}

/// What all clones of a service have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) onceward: Onceward,
    /// Keys the hashes of credentials and bodies. It must stay the same for as long as receipts are
    /// kept, and be the same in all processes that share a store.
    pub(crate) secret: [u8; 32],
    pub(crate) route: Route,
}

impl OncewardLayer {
    /// A layer over an engine. `secret` keys the hashes of scopes and bodies: keep it for as long as
    /// receipts are kept, and use the same one in all processes that share a store.
    pub fn new(onceward: Onceward, secret: [u8; 32], route: Route) -> Self {
        Self { shared: Arc::new(Shared { onceward, secret, route }) }
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
    shared: Arc<Shared>,
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
    type Future = ResponseFuture<S::Future, B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let key = match find_key(&self.shared.route, &request) {
            Ok(Some(key)) => key,
            Ok(None) => return ResponseFuture::pass(self.inner.call(request)),
            Err(problem) => {
                let refusal = guard::refuse(problem);
                return ResponseFuture::guarded(Box::pin(async { Ok(refusal) }));
            }
        };
        // The service that was found ready does the work; the clone has to be asked anew.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::guarded(Box::pin(guard::guard(self.shared.clone(), ready, request, key)))
    }
}

/// The key of a request that is to be guarded.
fn find_key<I>(route: &Route, request: &Request<I>) -> Result<Option<String>, Problem> {
    if route.key == KeyRule::Ignored || !route.methods.contains(request.method()) {
        return Ok(None);
    }
    match key::read(request.headers(), route.form) {
        Ok(None) if route.key == KeyRule::Required => Err(Problem::KeyMissing),
        Ok(key) => Ok(key),
        Err(bad) => Err(refuse_key(bad)),
    }
}

fn refuse_key(bad: BadKey) -> Problem {
    Problem::KeyMalformed(bad.to_string())
}
