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
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use onceward::{Answer, Ask, Error, ErrorKind, Id, Outcome, Refusal, Stopped, Verdict};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::fingerprint::{self, Head};
use crate::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::route::{Action, Route};
use crate::snapshot;

type Answered<B, E> = Result<Response<ResponseBody<B>>, E>;

pub(crate) async fn guard<S, I, B>(
    shared: Arc<Shared>,
    service: S,
    request: Request<I>,
    key: String,
) -> Answered<B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let max = shared.route.request_bytes_max;
    let body = match read_body(body, max).await {
        Ok(body) => body,
        Err(Unread::TooLarge) => return Ok(refuse(Problem::BodyTooLarge(max))),
        Err(Unread::Broken) => return Ok(empty(StatusCode::BAD_REQUEST)),
    };
    let ask = match ask(&shared, &parts, &body, &key) {
        Ok(ask) => ask,
        Err(error) => return Ok(refuse(Problem::KeyMalformed(error.to_string()))),
    };
    let (tell, told) = oneshot::channel();
    let work = tokio::spawn(run(shared, service, Request::from_parts(parts, I::from(body)), ask, tell));
    match told.await {
        Ok(answer) => answer,
        // The task ended without a word: its work panicked, and the panic belongs to this caller.
        Err(_) => match work.await {
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            _ => Ok(empty(StatusCode::INTERNAL_SERVER_ERROR)),
        },
    }
}

/// A refusal as a response.
pub(crate) fn refuse<B>(problem: Problem) -> Response<ResponseBody<B>> {
    let status = problem.status();
    problem.into_response(status).map(ResponseBody::whole)
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

fn ask(shared: &Shared, parts: &Parts, body: &[u8], key: &str) -> onceward::Result<Ask> {
    let route = &shared.route;
    let scope = route.scope.read(parts, &shared.secret);
    let id = Id::new(&scope, &Route::operation(parts), key)?;
    let fingerprint = fingerprint::fingerprint(&route.fingerprint, &shared.secret, &Head::from(parts), body);
    Ok(Ask::new(id, fingerprint, route.policy.clone()))
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
    mut request: Request<I>,
    ask: Ask,
    tell: oneshot::Sender<Answered<B, S::Error>>,
) where
    S: Service<Request<I>, Response = Response<B>>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut tell = Some(tell);
    let mut made = Made::Nothing;
    let (tell_live, made_here, route) = (&mut tell, &mut made, &shared.route);
    let answer = shared
        .onceward
        .run(ask, async move |lease| {
            request.extensions_mut().insert(lease);
            match service.call(request).await {
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
            None => refuse(Problem::StoreUnavailable),
        }),
        (Ok(Answer::Refused(refusal)), _) => Ok(refuse(problem_of(refusal))),
        // The route says that this response is not an answer to keep; it is passed on all the same.
        (Err(_), Made::Whole(response)) => Ok(response),
        (Err(_), Made::Failed(error)) => Err(error),
        (Err(error), _) => Ok(refuse(problem_of_error(&error))),
    };
    // A client that hung up does not mind.
    let _ = tell.send(answer);
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
    let verdict = if status.as_u16() < 400 { Verdict::Succeeded } else { Verdict::Failed };
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
        let kept = match route.action(status) {
            Action::Replay => Some(snapshot::encode(status, &parts.headers, &collected, &route.omitted)),
            Action::Retry | Action::Unknown => None,
        };
        *made = Made::Whole(Response::from_parts(parts, ResponseBody::whole(collected.freeze())));
        return match (route.action(status), kept, verdict) {
            (Action::Replay, Some(kept), Verdict::Succeeded) => Ok(Outcome::succeeded(kept)),
            (Action::Replay, Some(kept), Verdict::Failed) => Ok(Outcome::failed(kept)),
            (Action::Unknown, ..) => Err(Stopped::unknown(format!("the service answered {status}"))),
            _ => Err(Stopped::before_effect(format!("the service answered {status}, which frees the key"))),
        };
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
    Ok(Outcome::omitted(verdict, status.as_str().to_owned()))
}

/// Frames of a live response on their way: enough to keep both sides busy, few enough to be bounded.
const LIVE_FRAMES: usize = 8;

fn with_expiry<B>(
    mut response: Response<ResponseBody<B>>,
    expires_in: Option<std::time::Duration>,
) -> Response<ResponseBody<B>> {
    if let Some(at) = expires_in.and_then(|expires_in| SystemTime::now().checked_add(expires_in))
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(at))
    {
        response.headers_mut().insert(IDEMPOTENCY_EXPIRES, date);
    }
    response
}

fn replay<B>(
    response: Response<Bytes>,
    expires_in: Option<std::time::Duration>,
) -> Response<ResponseBody<B>> {
    let mut response = with_expiry(response.map(ResponseBody::whole), expires_in);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

fn problem_of(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::KeyReused => Problem::KeyReused,
        Refusal::InProgress { retry_after } => Problem::InProgress { retry_after },
        Refusal::OutcomeUnknown => Problem::OutcomeUnknown,
        Refusal::ResponseNotStored { note, .. } => {
            let original_status = std::str::from_utf8(&note).ok().and_then(|note| note.parse().ok());
            Problem::ResponseNotStored { original_status }
        }
        Refusal::KeyExpired => Problem::KeyExpired,
        // A reason that this version does not know cannot be retried safely.
        _ => Problem::OutcomeUnknown,
    }
}

fn problem_of_error(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Overloaded => Problem::Overloaded,
        ErrorKind::LeaseLost | ErrorKind::Conflict => {
            Problem::InProgress { retry_after: std::time::Duration::from_secs(1) }
        }
        ErrorKind::Stopped => Problem::OutcomeUnknown,
        _ => {
            tracing::error!(%error, "the store of receipts failed");
            Problem::StoreUnavailable
        }
    }
}
