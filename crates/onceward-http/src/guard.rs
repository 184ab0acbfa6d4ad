//! The way of one guarded request.
//!
//! ```text
//! admit     head: key, scope, operation ─▶ id, or a refusal
//! Reading   body, up to the bound
//! begin     fingerprint ─▶ ask; an answer at hand is given at once
//! Running   run.rs: onceward.run ─▶ inner service ─▶ response
//!             ≤ cap  the whole response leaves when its receipt is durable
//!             > cap  head and body leave as they come; the end waits for the receipt
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
use crate::layer::Shared;
use crate::problem::Problem;
use crate::reading::{Read, Unread};
use crate::rotation::Ids;
use crate::route::Route;
use crate::run::run;
use crate::running::Running;
use crate::scope::{OnAnonymous, Scope};

/// One guarded request under way: what it shares with all others, and what it takes of the room for bodies.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    body_bytes: usize,
}

impl Ticket {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.metrics.in_flight.one();
        Self { shared: shared.clone(), body_bytes: 0 }
    }

    /// Takes room for a piece of the body, until the request is over.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> bool {
        let taken = self.shared.admission.take_bytes(bytes);
        if taken {
            self.body_bytes += bytes;
        }
        taken
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn route(&self) -> &Route {
        &self.shared.route
    }

    pub(crate) fn onceward(&self) -> &Onceward {
        &self.shared.onceward
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.metrics.in_flight.one_less();
        self.shared.admission.give_bytes(self.body_bytes);
    }
}

/// Whose intent a request is, from its head alone; refused before anything is read or looked up.
pub(crate) fn admit<I>(
    shared: &Arc<Shared>,
    request: &Request<I>,
    key_lines: &GetAll<'_, HeaderValue>,
) -> Result<(Ticket, Ids), Problem> {
    shared.metrics.guarded.one();
    Ok((Ticket::new(shared), ids(shared, request, key_lines)?))
}

fn ids<I>(
    shared: &Shared,
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

/// What becomes of a request once its body was read.
pub(crate) enum Begun<B, E> {
    Answered(Response<ResponseBody<B>>),
    Running(Running<B, E>),
}

pub(crate) fn begin<S, I, B>(read: Read<S>) -> Begun<B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Read { rest, body } = read;
    let shared = rest.ticket.shared();
    let body = match body {
        Ok(body) => body,
        Err(Unread::TooLarge) => {
            let problem = Problem::BodyTooLarge(shared.route.request_bytes_max);
            return Begun::Answered(answer::refuse(shared, problem));
        }
        Err(Unread::NoRoom) => return Begun::Answered(answer::refuse(shared, Problem::Overloaded)),
        Err(Unread::Broken) => return Begun::Answered(answer::empty(StatusCode::BAD_REQUEST)),
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
    Begun::Running(Running::new(rest.ticket, |link| run(link, service, Some(request), asks)))
}
