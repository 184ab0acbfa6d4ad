//! The steps of one guarded request.
//!
//! ```text
//! admit         head: key, scope, operation ─▶ id, or a refusal; a key in the body comes after the body
//! BodyReader    body, up to the limit
//! begin         fingerprint ─▶ ask; a cached answer is returned at once
//! IntentFuture  run.rs: onceward.run ─▶ inner service ─▶ response
//!                 ≤ limit  the response is sent when its receipt is durable
//!                 > limit  head and body are sent as they arrive; the end waits for the receipt
//! ```

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use onceward::Onceward;
use tower_service::Service;

use crate::admission::{ClientAddress, ReservedBytes};
use crate::answer;
use crate::body::{BoxError, ResponseBody};
use crate::fingerprint::{self, Head};
use crate::intent_future::IntentFuture;
use crate::key_source::KeyFrom;
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::request_body::{BodyError, ReadRequest};
use crate::route::{KeyRule, Route};
use crate::run::run;
use crate::scope::{self, CallerHead};
use crate::secret_rotation::Ids;

/// One guarded request in flight: counted in the metrics, with the body bytes that it has reserved.
pub(crate) struct InFlight {
    shared: Arc<LayerState>,
    body_bytes: ReservedBytes,
}

impl InFlight {
    fn new(shared: &Arc<LayerState>, client: Option<ClientAddress>) -> Self {
        shared.metrics.in_flight.one();
        Self { shared: shared.clone(), body_bytes: ReservedBytes::of(client) }
    }

    /// Reserves memory for a piece of the body until the request ends.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), Problem> {
        self.shared.admission.take_bytes(&mut self.body_bytes, bytes)
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
        self.shared.admission.give_bytes(&self.body_bytes);
    }
}

/// Determines the intent of a request from its head. A refusal comes before the body is read or the store is asked.
pub(crate) fn admit<I>(
    shared: &Arc<LayerState>,
    request: &Request<I>,
) -> Result<(InFlight, Option<Ids>), Problem> {
    let client = request.extensions().get().copied();
    let KeyFrom::Header(field) = &shared.route.key_from else {
        return Ok((InFlight::new(shared, client), None));
    };
    shared.metrics.guarded.one();
    let key = match shared.route.shape.read_lines(&request.headers().get_all(field)) {
        Ok(Some(key)) => key,
        Ok(None) => return Err(shared.route.key_from.missing()),
        Err(bad) => return Err(Problem::KeyMalformed(bad.about(&shared.route.key_from.name()))),
    };
    let (uri, headers, extensions) = (request.uri(), request.headers(), request.extensions());
    let ids = ids_of(shared, request.method(), CallerParts { uri, headers, extensions }, &key)?;
    Ok((InFlight::new(shared, client), Some(ids)))
}

/// The ids of a request whose key is in its body; `None` if it has no key and needs none.
fn ids_from_body(shared: &LayerState, parts: &Parts, body: &[u8]) -> Result<Option<Ids>, Problem> {
    let route = &shared.route;
    let key = match &route.key_from {
        KeyFrom::Body(pointer) => KeyFrom::read_body(pointer, &route.shape, body),
        KeyFrom::Header(_) => Ok(None),
    };
    let key = match (key, route.key) {
        (Ok(None), KeyRule::Optional) => {
            shared.metrics.keyless.one();
            return Ok(None);
        }
        (key, _) => key,
    };
    shared.metrics.guarded.one();
    let key = key?.ok_or_else(|| route.key_from.missing())?;
    let from = CallerParts { uri: &parts.uri, headers: &parts.headers, extensions: &parts.extensions };
    ids_of(shared, &parts.method, from, &key).map(Some)
}

/// The parts of a request that say who asks.
#[derive(Clone, Copy)]
struct CallerParts<'a> {
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

/// The ids of the intent with this key: under each secret, and under each terms that its receipts may have.
fn ids_of(shared: &LayerState, method: &Method, parts: CallerParts<'_>, key: &str) -> Result<Ids, Problem> {
    let LayerState { route, secrets, .. } = shared;
    let CallerParts { uri, headers, extensions } = parts;
    let head = CallerHead { uri, headers, caller: extensions.get() };
    let (current, caller) = route.identity.id(method, head, key, secrets.current())?;
    if headers.contains_key(CONNECTION)
        && let Some(listed) = scope::listed_by_connection(headers, |name| route.counts(name, caller))
    {
        return Err(Problem::ScopeMissing(listed.to_string()));
    }
    let mut ids = Ids::new(current, caller);
    for (at, secret) in secrets.all().enumerate().skip(1) {
        ids.also(at, route.identity.id(method, head, key, secret)?);
    }
    for former in &route.former {
        let head = CallerHead { caller: former.caller_in(extensions), ..head };
        for (at, secret) in secrets.all().enumerate() {
            // Settings that refused such a request have left no receipt of it.
            if let Ok(id) = former.id(method, head, key, secret) {
                ids.also(at, id);
            }
        }
    }
    Ok(ids)
}

/// A request after its body was read: answered already, or running.
pub(crate) enum Begun<F, B, E> {
    Answered(Response<ResponseBody<B>>),
    /// It has no key, and needs none: the service was called without a guard.
    Passed(F),
    Running(IntentFuture<B, E>),
}

pub(crate) fn begin<S, I, B>(read: ReadRequest<S>) -> Begun<S::Future, B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let ReadRequest { mut rest, body } = read;
    let shared = rest.in_flight.shared();
    let body = match body {
        Ok(body) => body,
        Err(BodyError::TooLarge) => {
            let problem = Problem::BodyTooLarge(shared.route.request_bytes_max);
            return Begun::Answered(answer::refuse(shared, problem));
        }
        Err(BodyError::NoMemory(problem)) => return Begun::Answered(answer::refuse(shared, problem)),
        Err(BodyError::Broken) => return Begun::Answered(answer::empty(StatusCode::BAD_REQUEST)),
    };
    let ids = match rest.ids.take() {
        Some(ids) => ids,
        None => match ids_from_body(shared, &rest.parts, &body) {
            Ok(Some(ids)) => ids,
            Ok(None) => {
                // Without a key there is no receipt that could come first.
                let (method, headers) = (&rest.parts.method, &rest.parts.headers);
                if let Err(problem) = shared.route.precondition.check(method, headers) {
                    return Begun::Answered(answer::refuse(shared, problem));
                }
                return Begun::Passed(rest.service.call(Request::from_parts(rest.parts, I::from(body))));
            }
            Err(problem) => return Begun::Answered(answer::refuse(shared, problem)),
        },
    };
    let route = &shared.route;
    let head = Head::from(&rest.parts);
    let prints = |caller| {
        fingerprint::fingerprints(&route.fingerprint, &shared.secrets, &head.with_caller(caller), &body)
    };
    let asks = ids.ask(prints, &route.policy);
    if let Some(answer) = asks.cached_answer(&shared.onceward) {
        return Begun::Answered(answer::of(shared, asks.caller, answer));
    }
    let request = Request::from_parts(rest.parts, I::from(body));
    let service = rest.service;
    Begun::Running(IntentFuture::new(rest.in_flight, |slot| run(slot, service, Some(request), asks)))
}
