//! One guarded request: body, ask, run, answer. The work has a task of its own, so a client that hangs
//! up cancels nothing.
//!
//! ```text
//! client ──▶ read the body ──▶ task: onceward.run ──▶ inner service
//!                                │                        │ response
//!                                │ Ended ≤ cap            ▼
//!   client ◀── whole response ◀──┴── receipt durable ◀── collected
//!   client ◀── head and frames as they come ◀─────────── over the cap; the end waits for the receipt
//! ```

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use onceward::{
    Answer, Applied, Ask, Error, ErrorKind, Id, OnUnknown, Outcome, Refusal, Sight, Stopped, Verdict,
};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

use crate::action::{Action, StatusClass};
use crate::body::{BoxError, ResponseBody};
use crate::fingerprint::{self, Head};
use crate::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, ONCEWARD_UNGUARDED};
use crate::layer::Shared;
use crate::meters::Meters;
use crate::problem::Problem;
use crate::route::{OnStoreFailure, Route, verdict};
use crate::scope::{OnAnonymous, Scope};
use crate::snapshot;

type Answered<B, E> = Result<Response<ResponseBody<B>>, E>;

pub(crate) async fn guard<S, I, B>(
    shared: Arc<Shared>,
    service: S,
    request: Request<I>,
) -> Answered<B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let _in_flight = InFlight::begin(&shared.meters);
    let (parts, body) = request.into_parts();
    // Refused before anything is read or looked up.
    let place = match place(&shared, &parts) {
        Ok(place) => place,
        Err(problem) => return Ok(shared.refuse(problem)),
    };
    let max = shared.route.request_bytes_max;
    let body = match read_body(body, max).await {
        Ok(body) => body,
        Err(Unread::TooLarge) => return Ok(shared.refuse(Problem::BodyTooLarge(max))),
        Err(Unread::Broken) => return Ok(empty(StatusCode::BAD_REQUEST)),
    };
    let ask = ask(&shared, &parts, &body, place);
    let (tell, told) = oneshot::channel();
    let work =
        tokio::spawn(run(shared.clone(), service, Request::from_parts(parts, I::from(body)), ask, tell));
    match told.await {
        Ok(answer) => answer,
        // The task ended without a word: its work panicked, and the panic belongs to this caller.
        Err(_) => match work.await {
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            _ => Ok(empty(StatusCode::INTERNAL_SERVER_ERROR)),
        },
    }
}

/// One guarded request under way, for the meter.
struct InFlight<'a>(&'a Meters);

impl<'a> InFlight<'a> {
    fn begin(meters: &'a Meters) -> Self {
        meters.guarded.one();
        meters.in_flight.one();
        Self(meters)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.one_less();
    }
}

impl Shared {
    /// A refusal as a response, counted.
    fn refuse<B>(&self, problem: Problem) -> Response<ResponseBody<B>> {
        self.meters.refused(&problem);
        let status = self.route.status_of(&problem);
        problem.into_response(status).map(ResponseBody::whole)
    }
}

fn empty<B>(status: StatusCode) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

enum Unread {
    TooLarge,
    Broken,
}

async fn read_body<I: Body<Data = Bytes>>(body: I, max: usize) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > max as u64 {
        return Err(Unread::TooLarge);
    }
    let mut body = std::pin::pin!(body);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers say nothing about the intent.
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if whole.len() + data.len() > max {
            return Err(Unread::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The id of a request's intent, from its head alone.
fn place(shared: &Shared, parts: &Parts) -> Result<Id, Problem> {
    let route = &shared.route;
    let key = match route.shape.read(&parts.headers) {
        Ok(Some(key)) => key,
        Ok(None) => return Err(Problem::KeyMissing),
        Err(bad) => return Err(Problem::KeyMalformed(bad.to_string())),
    };
    let scope = match route.scope.read(parts, shared.secrets.current()) {
        Some(scope) => scope,
        None if route.anonymous_rule() == OnAnonymous::Share => Scope::ANONYMOUS,
        None => return Err(Problem::ScopeMissing),
    };
    let operation = route.operation.of(&parts.method, parts.uri.path());
    Id::new(scope.as_str(), &operation, &key).map_err(|error| Problem::KeyMalformed(error.to_string()))
}

fn ask(shared: &Shared, parts: &Parts, body: &[u8], id: Id) -> Ask {
    let route = &shared.route;
    let prints = fingerprint::fingerprints(&route.fingerprint, &shared.secrets, &Head::from(parts), body);
    Ask::new(id, prints.current, route.policy.clone()).also(prints.older)
}

/// What came of the inner service, in this very run.
enum Made<B, E> {
    Nothing,
    /// A whole response, to be sent once its receipt is there.
    Whole(Response<ResponseBody<B>>),
    /// Already on its way; dropping the sender is its end.
    Live(
        #[allow(dead_code, reason = "held, so that the end of the body waits")]
        mpsc::Sender<Result<Frame<Bytes>, BoxError>>,
    ),
    Failed(E),
}

/// Runs the intent and tells its answer. Nobody waits for this to return.
async fn run<S, I, B>(
    shared: Arc<Shared>,
    mut service: S,
    request: Request<I>,
    ask: Ask,
    tell: oneshot::Sender<Answered<B, S::Error>>,
) where
    S: Service<Request<I>, Response = Response<B>>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut tell = Some(tell);
    let mut made = Made::Nothing;
    let mut waiting = Some(request);
    let (tell_live, made_here, route) = (&mut tell, &mut made, &shared.route);
    let (request_here, service_here) = (&mut waiting, &mut service);
    let answer = shared
        .onceward
        .run(ask, async move |lease| {
            let mut request = request_here.take().expect("the work is run once");
            request.extensions_mut().insert(lease);
            match service_here.call(request).await {
                Ok(response) => take_in(route, response, tell_live, made_here).await,
                Err(error) => {
                    *made_here = Made::Failed(error);
                    Err(Stopped::unknown("the service failed without a response"))
                }
            }
        })
        .await;
    let Some(tell) = tell else {
        // A live response is on its way. Its receipt is written: dropping `made` is its end.
        return;
    };
    let answer = match (answer, made) {
        (Ok(Answer::Ran(ran)), Made::Whole(response)) if !ran.replayed => {
            Ok(with_expiry(response, ran.expires_in))
        }
        (Ok(Answer::Ran(ran)), _) => Ok(match snapshot::decode(ran.outcome.body()) {
            Some(response) => replay(response, ran.expires_in),
            None => shared.refuse(Problem::StoreUnavailable),
        }),
        (Ok(Answer::Refused(refusal)), _) => Ok(shared.refuse(problem_of(refusal))),
        // The route says that this response is not an answer to keep; it is passed on all the same.
        (Err(_), Made::Whole(response)) => Ok(response),
        (Err(_), Made::Failed(error)) => Err(error),
        (Err(error), _) => match waiting.filter(|_| may_pass_unguarded(route, &error)) {
            Some(request) => pass_unguarded(&shared.meters, service.call(request).await),
            None => Ok(shared.refuse(problem_of_error(route, &error))),
        },
    };
    // A client that hung up does not mind.
    let _ = tell.send(answer);
}

/// Whether a request that was not run may be passed on without a guard: only if the store is known not to
/// have taken its claim, and nothing is known of any other.
fn may_pass_unguarded(route: &Route, error: &Error) -> bool {
    route.on_store_failure == OnStoreFailure::PassUnguarded
        && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full)
        && error.applied() == Applied::No
        && error.sight() == Sight::Nothing
}

fn pass_unguarded<B, E>(meters: &Meters, answer: Result<Response<B>, E>) -> Answered<B, E> {
    meters.passed_unguarded.one();
    let mut response = answer?.map(ResponseBody::inner);
    response.headers_mut().insert(ONCEWARD_UNGUARDED, HeaderValue::from_static("store-unavailable"));
    Ok(response)
}

/// Takes a response in: whole, if it is small enough to be kept; otherwise it is passed on as it comes.
async fn take_in<B, E>(
    route: &Route,
    response: Response<B>,
    tell: &mut Option<oneshot::Sender<Answered<B, E>>>,
    made: &mut Made<B, E>,
) -> Result<Outcome, Stopped>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let status = parts.status;
    // The service's own word counts for more than the table.
    let action = parts.extensions.get().copied().unwrap_or_else(|| route.action(status));
    let mut body = std::pin::pin!(body);
    let mut collected = BytesMut::new();
    let mut overflow = None;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                // Trailers are not replayed, so they are not passed on either.
                let Ok(data) = frame.into_data() else { continue };
                if collected.len() + data.len() > route.response_bytes_max {
                    overflow = Some(data);
                    break;
                }
                collected.extend_from_slice(&data);
            }
            Err(_) => return Err(Stopped::unknown("the response broke off")),
        }
    }
    let Some(overflow) = overflow else {
        let ending = ending(action, status, || {
            let kept = snapshot::encode(status, &parts.headers, &collected, &route.omitted);
            match verdict(status) {
                Verdict::Succeeded => Outcome::succeeded(kept),
                Verdict::Failed => Outcome::failed(kept),
            }
        });
        *made = Made::Whole(Response::from_parts(parts, ResponseBody::whole(collected.freeze())));
        return keep(route, status, ending);
    };
    let (sender, frames) = mpsc::channel(LIVE_FRAMES);
    if let Some(tell) = tell.take() {
        let _ = tell.send(Ok(Response::from_parts(parts, ResponseBody::live(frames))));
    }
    let mut next = Some(Ok(Frame::data(collected.freeze())));
    let mut then = Some(Ok(Frame::data(overflow)));
    while let Some(frame) = next.take() {
        let broken = frame.is_err();
        // Once nobody listens, the rest is still read: the service must not be cut off by a client.
        let _ = sender.send(frame).await;
        if broken {
            return Err(Stopped::unknown("the response broke off"));
        }
        next = match then.take() {
            Some(frame) => Some(frame),
            None => body.frame().await.map(|frame| frame.map_err(Into::into)),
        };
    }
    *made = Made::Live(sender);
    let omitted = || Outcome::omitted(verdict(status), status.as_str().to_owned());
    keep(route, status, ending(action, status, omitted))
}

/// What a response means for its receipt.
fn ending(action: Action, status: StatusCode, outcome: impl FnOnce() -> Outcome) -> Result<Outcome, Stopped> {
    match action {
        Action::Replay => Ok(outcome()),
        Action::Retry => {
            Err(Stopped::before_effect(format!("the service answered {status}, which frees the key")))
        }
        Action::Unknown => Err(Stopped::unknown(format!("the service answered {status}"))),
    }
}

/// An outcome with the retention that the route has for its class, if it has one.
fn keep(route: &Route, status: StatusCode, outcome: Result<Outcome, Stopped>) -> Result<Outcome, Stopped> {
    match (outcome, route.own_retention(StatusClass::of(status))) {
        (Ok(outcome), Some(retention)) => Ok(outcome.keep(retention)?),
        (outcome, _) => outcome,
    }
}

/// Frames of a live response on their way: enough to keep both sides busy, few enough to be bounded.
const LIVE_FRAMES: usize = 8;

fn with_expiry<B>(
    mut response: Response<ResponseBody<B>>,
    expires_in: Option<Duration>,
) -> Response<ResponseBody<B>> {
    if let Some(at) = expires_in.and_then(|expires_in| SystemTime::now().checked_add(expires_in))
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(at))
    {
        response.headers_mut().insert(IDEMPOTENCY_EXPIRES, date);
    }
    response
}

fn replay<B>(response: Response<Bytes>, expires_in: Option<Duration>) -> Response<ResponseBody<B>> {
    let mut response = with_expiry(response.map(ResponseBody::whole), expires_in);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

fn problem_of(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::KeyReused => Problem::KeyReused,
        Refusal::InProgress { retry_after } => Problem::InProgress { retry_after },
        Refusal::OutcomeUnknown => Problem::OutcomeUnknown { retry_after: None },
        Refusal::ResponseNotStored { note, .. } => {
            let original_status = std::str::from_utf8(&note).ok().and_then(|note| note.parse().ok());
            Problem::ResponseNotStored { original_status }
        }
        Refusal::KeyExpired => Problem::KeyExpired,
        // A reason that this version does not know cannot be retried safely.
        _ => Problem::OutcomeUnknown { retry_after: None },
    }
}

fn problem_of_error(route: &Route, error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Overloaded => Problem::Overloaded,
        ErrorKind::Conflict => Problem::InProgress { retry_after: SOON },
        // The work was cut short. Whoever asks again runs it, or waits for whoever runs it now.
        ErrorKind::LeaseLost => Problem::OutcomeUnknown { retry_after: Some(SOON) },
        ErrorKind::Stopped => match route.policy.unknown_rule() {
            OnUnknown::Hold => Problem::OutcomeUnknown { retry_after: None },
            OnUnknown::Retry => Problem::OutcomeUnknown { retry_after: Some(SOON) },
        },
        _ => {
            tracing::error!(%error, "the store of receipts failed");
            Problem::StoreUnavailable
        }
    }
}

/// When to come back where nothing says how long it takes.
const SOON: Duration = Duration::from_secs(1);
