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
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use onceward::{Id, Onceward};
use tower_service::Service;

use crate::admission::{AnsweringPlace, ClientAddress, ReservedBytes};
use crate::answer;
use crate::body::{BoxError, ResponseBody};
use crate::closes;
use crate::fingerprint::{self, Head};
use crate::intent_future::IntentFuture;
use crate::key_source::KeyFrom;
use crate::layer::LayerState;
use crate::permits;
use crate::problem::Problem;
use crate::request_body::{BodyError, WaitingRequest};
use crate::request_fields::RequestFields;
use crate::route::{KeyRule, Route};
use crate::run::run;
use crate::scope::{self, CallerHead};
use crate::secret_rotation::Ids;
use crate::shedding::ShedPermit;
use crate::webhook::receive;

/// One guarded request in flight: counted in the metrics, with the body bytes that it has reserved.
pub(crate) struct InFlight {
    shared: Arc<LayerState>,
    body_bytes: ReservedBytes,
    /// Where it is counted while it waits or is looked up.
    answering: Option<AnsweringPlace>,
    /// What its head has.
    pub(crate) fields: RequestFields,
}

impl InFlight {
    fn new(shared: &Arc<LayerState>, client: Option<ClientAddress>, fields: RequestFields) -> Self {
        shared.metrics.in_flight.one();
        Self { shared: shared.clone(), body_bytes: ReservedBytes::of(client), answering: None, fields }
    }

    /// Reserves memory for a piece of the body until the request ends.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), Problem> {
        self.shared.admission.take_bytes(&mut self.body_bytes, bytes)
    }

    /// Counts it among the requests that wait or are looked up in the store. `false` if it must not wait.
    fn begin_answering(&mut self, id: &Id, client: Option<ClientAddress>) -> Result<bool, Problem> {
        let place = self.answering.insert(self.shared.admission.begin_answering(id, client)?);
        Ok(place.waits())
    }

    /// It runs: it waits no longer.
    pub(crate) fn runs(&self) {
        if let Some(place) = &self.answering {
            self.shared.admission.end_answering(place);
        }
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
        self.runs();
    }
}

/// The hash of a name as long as `Idempotency-Key` costs more than comparing the names of this many fields.
const FIELDS_COMPARED_MAX: usize = 12;

/// Determines the intent of a request from its head. A refusal comes before the body is read or the store is asked.
pub(crate) fn admit<I>(
    shared: &Arc<LayerState>,
    request: &Request<I>,
    fields: RequestFields,
) -> Result<(InFlight, Option<Ids>), Problem> {
    let client = request.extensions().get().copied();
    let KeyFrom::Header(field) = &shared.route.key_from else {
        return Ok((InFlight::new(shared, client, fields), None));
    };
    shared.metrics.guarded.one();
    let (headers, shape) = (request.headers(), &shared.route.shape);
    let key = if headers.len() <= FIELDS_COMPARED_MAX {
        shape.read_lines(headers.iter().filter(|(name, _)| *name == field).map(|(_, line)| line))
    } else {
        shape.read_lines(headers.get_all(field).iter())
    };
    let key = match key {
        Ok(Some(key)) => key,
        Ok(None) => return Err(shared.route.key_from.missing()),
        Err(bad) => return Err(Problem::KeyMalformed(bad.about(&shared.route.key_from.name()))),
    };
    let (uri, headers, extensions) = (request.uri(), request.headers(), request.extensions());
    let ids = ids_of(shared, request.method(), CallerParts { uri, headers, extensions, fields }, &key)?;
    Ok((InFlight::new(shared, client, fields), Some(ids)))
}

/// The ids of a request whose key is in its body; `None` if it has no key and needs none.
fn ids_from_body(
    shared: &LayerState,
    parts: &Parts,
    fields: RequestFields,
    body: &[u8],
) -> Result<Option<Ids>, Problem> {
    let route = &shared.route;
    let key = match &route.key_from {
        KeyFrom::Body(pointer) => KeyFrom::read_body(pointer, &route.shape, body),
        KeyFrom::Header(_) | KeyFrom::Event(_) => Ok(None),
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
    ids_of_request(shared, parts, fields, &key).map(Some)
}

/// The ids of a request with this key.
pub(crate) fn ids_of_request(
    shared: &LayerState,
    parts: &Parts,
    fields: RequestFields,
    key: &str,
) -> Result<Ids, Problem> {
    let Parts { uri, headers, extensions, .. } = parts;
    let from = CallerParts { uri, headers, extensions, fields };
    ids_of(shared, &parts.method, from, key)
}

/// Admits a request without a key, or refuses it. Only where [`Route::checks_keyless`].
pub(crate) fn admit_keyless(
    shared: &LayerState,
    method: &Method,
    from: CallerParts<'_>,
) -> Result<Option<ShedPermit>, Problem> {
    if closes::needs_guard(&shared.route, from.headers) {
        return Err(shared.route.key_from.missing());
    }
    let scope = || ids_of(shared, method, from, permits::KEYLESS).ok().map(|ids| ids.current);
    permits::enter_keyless(shared, method, from.headers, scope)
}

/// The parts of a request that say who asks.
#[derive(Clone, Copy)]
pub(crate) struct CallerParts<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
    pub(crate) fields: RequestFields,
}

/// The ids of the intent with this key: under each secret, and under each terms that its receipts may have.
fn ids_of(shared: &LayerState, method: &Method, parts: CallerParts<'_>, key: &str) -> Result<Ids, Problem> {
    let LayerState { route, secrets, .. } = shared;
    let CallerParts { uri, headers, extensions, fields } = parts;
    let head =
        CallerHead { uri, headers, fields, caller: extensions.get(), forwarded_host: extensions.get() };
    let (current, caller) = route.identity.id(method, head, key, secrets.current())?;
    if fields.has(RequestFields::CONNECTION)
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
    Passed(F, Option<ShedPermit>),
    Running(IntentFuture<B, E>),
}

/// Begins with a request whose body was read, or could not be.
pub(crate) fn begin<S, I, B>(
    mut waiting: Box<WaitingRequest<S>>,
    read: Result<(), BodyError>,
) -> Begun<S::Future, B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut in_flight = waiting.in_flight.take().expect("it does not run yet");
    let (shared, fields) = (&*in_flight.shared, in_flight.fields);
    match read {
        Ok(()) => {}
        Err(BodyError::TooLarge) => {
            let problem = Problem::BodyTooLarge(shared.route.request_bytes_max);
            return Begun::Answered(answer::refuse(shared, problem));
        }
        Err(BodyError::NoMemory(problem)) => return Begun::Answered(answer::refuse(shared, problem)),
        Err(BodyError::Broken) => return Begun::Answered(answer::empty(StatusCode::BAD_REQUEST)),
    }
    let (parts, body) = (&waiting.parts, &waiting.body);
    if let Some(receiver) = &shared.route.webhook {
        return match receive::verify(shared, receiver, parts, body) {
            Ok(received) => Begun::Running(IntentFuture::new(in_flight, |slot| {
                receive::run::<S, I, B>(slot, waiting, received)
            })),
            Err(problem) => Begun::Answered(answer::refuse(shared, problem)),
        };
    }
    let ids = match waiting.ids.take() {
        Some(ids) => ids,
        None => match ids_from_body(shared, parts, fields, body) {
            Ok(Some(ids)) => ids,
            Ok(None) => {
                let Parts { method, uri, headers, extensions, .. } = parts;
                let from = CallerParts { uri, headers, extensions, fields };
                let permit = match admit_keyless(shared, method, from) {
                    Ok(permit) => permit,
                    Err(problem) => return Begun::Answered(answer::refuse(shared, problem)),
                };
                let request = Request::from_parts(waiting.parts, I::from(waiting.body));
                return Begun::Passed(waiting.service.call(request), permit);
            }
            Err(problem) => return Begun::Answered(answer::refuse(shared, problem)),
        },
    };
    let route = &shared.route;
    let closing = match closes::read(route, &parts.headers, &ids) {
        Ok(closing) => closing,
        Err(problem) => return Begun::Answered(answer::refuse(shared, problem)),
    };
    let head = Head::of(parts, fields).with_forwarded_host(parts.extensions.get());
    let prints = |caller| {
        fingerprint::fingerprints(&route.fingerprint, &shared.secrets, &head.with_caller(caller), body)
    };
    let mut asks = ids.ask(prints, &route.policy);
    if let Some(answer) = asks.cached_answer(&shared.onceward) {
        return Begun::Answered(answer::of(shared, asks.caller, answer));
    }
    let client = parts.extensions.get().copied();
    match in_flight.begin_answering(asks.current.id(), client) {
        Ok(true) => {}
        Ok(false) => asks = asks.at_once(),
        Err(problem) => return Begun::Answered(answer::refuse(in_flight.shared(), problem)),
    }
    Begun::Running(IntentFuture::new(in_flight, |slot| run::<S, I, B>(slot, waiting, asks, closing)))
}
