//! The steps of one guarded request.
//!
//! ```text
//! admit         head: key, scope, operation ─▶ id, or a refusal
//! BodyReader    body, up to the limit
//! begin         fingerprint ─▶ ask; a cached answer is returned at once
//! IntentFuture  run.rs: onceward.run ─▶ inner service ─▶ response
//!                 ≤ limit  the response is sent when its receipt is durable
//!                 > limit  head and body are sent as they arrive; the end waits for the receipt
//! ```

use std::sync::Arc;

use bytes::Bytes;
use http::header::GetAll;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use onceward::{Id, Onceward};
use tower_service::Service;

use crate::answer;
use crate::body::{BoxError, ResponseBody};
use crate::fingerprint::{self, Head};
use crate::intent_future::IntentFuture;
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::request_body::{BodyError, ReadRequest};
use crate::route::Route;
use crate::run::run;
use crate::scope::{OnAnonymous, Scope};
use crate::secret_rotation::Ids;

/// One guarded request in flight: counted in the metrics, with the body bytes that it has reserved.
pub(crate) struct InFlight {
    shared: Arc<LayerState>,
    body_bytes: usize,
}

impl InFlight {
    fn new(shared: &Arc<LayerState>) -> Self {
        shared.metrics.in_flight.one();
        Self { shared: shared.clone(), body_bytes: 0 }
    }

    /// Reserves memory for a piece of the body until the request ends. Returns whether there was enough.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> bool {
        let taken = self.shared.admission.take_bytes(bytes);
        if taken {
            self.body_bytes += bytes;
        }
        taken
    }

    pub(crate) fn shared(&self) -> &Arc<LayerState> {
        &self.shared
    }

    pub(crate) fn route(&self) -> &Route {
        &self.shared.route
    }

    pub(crate) fn onceward(&self) -> &Onceward {
        &self.shared.onceward
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.metrics.in_flight.one_less();
        self.shared.admission.give_bytes(self.body_bytes);
    }
}

/// Determines the intent of a request from its head. A refusal comes before the body is read or the store is asked.
pub(crate) fn admit<I>(
    shared: &Arc<LayerState>,
    request: &Request<I>,
    key_lines: &GetAll<'_, HeaderValue>,
) -> Result<(InFlight, Ids), Problem> {
    shared.metrics.guarded.one();
    Ok((InFlight::new(shared), ids(shared, request, key_lines)?))
}

fn ids<I>(
    shared: &LayerState,
    request: &Request<I>,
    key_lines: &GetAll<'_, HeaderValue>,
) -> Result<Ids, Problem> {
    let route = &shared.route;
    let key = match route.shape.read_lines(key_lines) {
        Ok(Some(key)) => key,
        Ok(None) => return Err(Problem::KeyMissing),
        Err(bad) => return Err(Problem::KeyMalformed(bad.to_string())),
    };
    let operation = route.operation.of(request.method(), request.uri().path());
    let id = |secret| {
        let scope = match route.scope.read(request.headers(), request.extensions(), secret) {
            Some(scope) => scope,
            None if route.on_anonymous() == OnAnonymous::Share => Scope::ANONYMOUS,
            None => return Err(Problem::ScopeMissing),
        };
        Id::new(scope.as_str(), &operation, &key).map_err(|error| Problem::KeyMalformed(error.to_string()))
    };
    let mut ids = Ids::new(id(shared.secrets.current())?);
    for (at, secret) in shared.secrets.all().enumerate().skip(1) {
        ids.also(at, id(secret)?);
    }
    Ok(ids)
}

/// A request after its body was read: answered already, or running.
pub(crate) enum Begun<B, E> {
    Answered(Response<ResponseBody<B>>),
    Running(IntentFuture<B, E>),
}

pub(crate) fn begin<S, I, B>(read: ReadRequest<S>) -> Begun<B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let ReadRequest { rest, body } = read;
    let shared = rest.in_flight.shared();
    let body = match body {
        Ok(body) => body,
        Err(BodyError::TooLarge) => {
            let problem = Problem::BodyTooLarge(shared.route.request_bytes_max);
            return Begun::Answered(answer::refuse(shared, problem));
        }
        Err(BodyError::MemoryFull) => return Begun::Answered(answer::refuse(shared, Problem::Overloaded)),
        Err(BodyError::Broken) => return Begun::Answered(answer::empty(StatusCode::BAD_REQUEST)),
    };
    let route = &shared.route;
    let head = Head::from(&rest.parts);
    let prints = fingerprint::fingerprints(&route.fingerprint, &shared.secrets, &head, &body);
    let asks = rest.ids.ask(prints, &route.policy);
    if let Some(answer) = asks.cached_answer(&shared.onceward) {
        return Begun::Answered(answer::of(shared, answer));
    }
    let request = Request::from_parts(rest.parts, I::from(body));
    let service = rest.service;
    Begun::Running(IntentFuture::new(rest.in_flight, |slot| run(slot, service, Some(request), asks)))
}
