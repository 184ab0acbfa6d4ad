//! Runs one intent: calls the inner service once the claim is granted, and records its response in the receipt.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use onceward::{
    Answer, Applied, Ask, Completed, Error, ErrorKind, Fingerprint, Id, Lease, Outcome, Prior, PriorReceipt,
    Recorded, Refusal, Stopped, Verdict,
};
use tokio::sync::mpsc;
use tower_service::Service;

use crate::action::Action;
use crate::answer;
use crate::body::{BoxError, Piece, ResponseBody};
use crate::body_buffer::BodyBuffer;
use crate::headers::{self, ONCEWARD_UNGUARDED};
use crate::intent_future::{ResponseSlot, RunEnd, ServiceResult};
use crate::late_record::{self, LateRecord};
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::reconcile;
use crate::request_id;
use crate::response_action::ResponseHead;
use crate::route::{OnStoreFailure, Route, verdict};
use crate::secret_rotation::Asks;
use crate::snapshot;
use crate::transact::ResponseLease;

/// What the inner service has returned in this run.
enum ServiceOutput<B, E> {
    Nothing,
    /// A complete response, to be sent once its receipt is written.
    Whole(Response<ResponseBody<B>>),
    /// A response that is being sent already; this completes it.
    Live(LiveEnd),
    Failed(E),
    /// The service was not called.
    TurnedAway(Problem),
}

/// Runs the intent, and returns its answer unless that is being sent already. The request waits until the claim is
/// granted.
///
/// Rare branches are boxed, to keep the future of every request small.
#[expect(clippy::manual_async_fn, reason = "an async fn keeps every argument twice, and this is hot")]
pub(crate) fn run<S, I, B>(
    slot: Arc<ResponseSlot<B>>,
    mut service: S,
    mut waiting: Option<Request<I>>,
    asks: Asks,
) -> impl Future<Output = RunEnd<B, S::Error>> + Send
where
    S: Service<Request<I>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Send,
    I: Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    async move {
        let shared = slot.in_flight.shared();
        let (route, admission) = (&shared.route, &shared.admission);
        let caller = asks.caller;
        // A request that must not run now can still get the answer of an earlier run.
        if let Err(problem) = may_run(shared, &asks, waiting.as_ref()) {
            return RunEnd::Answer(Ok(match Box::pin(asks.answer_without_running(&shared.onceward)).await {
                Ok(Some(answer)) => {
                    reconcile_unknown(shared, &answer, asks.each().map(Ask::id), waiting);
                    answer::of(shared, caller, answer)
                }
                Ok(None) => answer::refuse(shared, problem),
                Err(error) => answer::of_error(shared, &error),
            }));
        }
        let id = asks.current.id().clone();
        let fingerprint = *asks.current.fingerprint();
        let other_ids: Vec<Id> = asks.each().skip(1).map(|ask| ask.id().clone()).collect();
        // Held until the end, also while a live response is being sent.
        let mut permit = None;
        let mut output = ServiceOutput::Nothing;
        let (output_here, request_here, service_here, slot_here) =
            (&mut output, &mut waiting, &mut service, &slot);
        let permit_here = &mut permit;
        let work = async move |lease: Lease| {
            let prior = lease.prior();
            match admission.enter(lease.id()) {
                Ok(taken) => *permit_here = Some(taken),
                Err(problem) => {
                    *output_here = ServiceOutput::TurnedAway(problem);
                    return Err(Stopped::before_effect("the limit of running intents is reached"));
                }
            }
            let mut request = request_here.take().expect("the work is run once");
            let request_id = request_id::of(request.headers());
            let transacting = route.has_effects_in_transaction().then(|| {
                let transacting = ResponseLease::new(lease.clone(), shared);
                request.extensions_mut().insert(transacting.clone());
                transacting
            });
            request.extensions_mut().insert(lease);
            let served = service_here.call(request).await;
            if let Some((ran, response)) = transacting.and_then(|transacting| transacting.committed()) {
                // The committed response is the answer, even if the service returns another one.
                *output_here = response.map_or(ServiceOutput::Nothing, |response| {
                    ServiceOutput::Whole(response.map(ResponseBody::whole))
                });
                return Ok(ran.outcome);
            }
            let ended = match served {
                Ok(response) => collect_response(route, prior, response, slot_here, output_here).await,
                Err(error) => {
                    *output_here = ServiceOutput::Failed(error);
                    Err(Stopped::unknown("the service failed without a response"))
                }
            };
            ended.map_err(|stopped| request_id::noted(stopped, request_id.as_deref()))
        };
        let answer = match asks.alone() {
            Ok(ask) => shared.onceward.run(ask, work).await,
            Err(asks) => asks.run(&shared.onceward, work).await,
        };
        RunEnd::Answer(match (answer, output) {
            (answer, ServiceOutput::Live(end)) => {
                if Box::pin(completes(shared, &id, fingerprint, &answer)).await {
                    Box::pin(end.send()).await;
                }
                return RunEnd::Live;
            }
            (
                Ok(Answer::Completed(ran @ Completed { recorded: Recorded::NotYet, replayed: false, .. })),
                ServiceOutput::Whole(response),
            ) => Ok(match Box::pin(late_record::wait(shared, &id, fingerprint, &ran)).await {
                LateRecord::Recorded(recorded) => answer::with_expiry(response, recorded.expires_in),
                LateRecord::NotYet => answer::unrecorded(shared, response),
                LateRecord::Other(answer) => answer::of(shared, caller, answer),
                LateRecord::GivenUp => answer::refuse(shared, answer::TRY_AGAIN),
            }),
            (Ok(Answer::Completed(ran)), ServiceOutput::Whole(response)) if !ran.replayed => {
                Ok(answer::with_expiry(response, ran.expires_in))
            }
            (Ok(answer), _) => {
                reconcile_unknown(shared, &answer, std::iter::once(&id).chain(&other_ids), waiting);
                Ok(answer::of(shared, caller, answer))
            }
            // The route does not keep this response; the client still gets it.
            (Err(_), ServiceOutput::Whole(response)) => Ok(response),
            (Err(_), ServiceOutput::Failed(error)) => Err(error),
            (Err(_), ServiceOutput::TurnedAway(problem)) => Ok(answer::refuse(shared, problem)),
            (Err(error), ServiceOutput::Nothing) => {
                match waiting.filter(|_| may_pass_unguarded(route, &error)) {
                    Some(request) => match admission.enter(&id) {
                        Ok(_permit) => {
                            shared.metrics.passed_unguarded.one();
                            pass_unguarded(Box::pin(service.call(request)).await)
                        }
                        Err(problem) => Ok(answer::refuse(shared, problem)),
                    },
                    None => Ok(answer::of_error(shared, &error)),
                }
            }
        })
    }
}

/// Whether this request may run if it has no answer yet.
fn may_run<I>(shared: &LayerState, asks: &Asks, request: Option<&Request<I>>) -> Result<(), Problem> {
    if let Some(request) = request {
        shared.route.precondition.check(request.method(), request.headers())?;
    }
    shared.admission.check(asks.current.id())
}

/// Whether a live response may come to its end.
async fn completes(
    shared: &LayerState,
    id: &Id,
    fingerprint: Fingerprint,
    answer: &Result<Answer, Error>,
) -> bool {
    let ran = match answer {
        Ok(Answer::Completed(ran)) if ran.recorded == Recorded::NotYet => ran,
        // If the recorded answer is that of another run, this response must not look complete.
        answer => return matches!(answer, Ok(Answer::Completed(Completed { replayed: false, .. })) | Err(_)),
    };
    match late_record::wait(shared, id, fingerprint, ran).await {
        LateRecord::Recorded(_) => true,
        LateRecord::NotYet => {
            shared.metrics.sent_unrecorded.one();
            true
        }
        LateRecord::Other(_) | LateRecord::GivenUp => false,
    }
}

/// Reconciles the unknown outcome that a request was refused for, if the route has a hook for it.
fn reconcile_unknown<'i, I>(
    shared: &Arc<LayerState>,
    answer: &Answer,
    ids: impl IntoIterator<Item = &'i Id>,
    request: Option<Request<I>>,
) {
    if let Answer::Refused(Refusal::OutcomeUnknown) = answer
        && let Some(reconciler) = &shared.route.reconciler
        && let Some(request) = request
    {
        let (parts, _) = request.into_parts();
        for id in ids {
            reconcile::start(shared, reconciler, id, &parts);
        }
    }
}

/// Whether a request that was not run may be passed on without a guard: only if the store certainly did not store its
/// claim, and no receipt of the intent was seen.
fn may_pass_unguarded(route: &Route, error: &Error) -> bool {
    route.on_store_failure == OnStoreFailure::PassUnguarded
        && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full)
        && error.applied() == Applied::No
        && error.prior_receipt() == PriorReceipt::NotSeen
}

fn pass_unguarded<B, E>(answer: Result<Response<B>, E>) -> ServiceResult<B, E> {
    let mut response = answer?.map(ResponseBody::inner);
    response.headers_mut().insert(ONCEWARD_UNGUARDED, HeaderValue::from_static("store-unavailable"));
    Ok(response)
}

/// Collects a response if it is small enough to be kept; a larger one is sent while it arrives.
fn collect_response<B, E>(
    route: &Route,
    prior: Prior,
    response: Response<B>,
    slot: &ResponseSlot<B>,
    output: &mut ServiceOutput<B, E>,
) -> impl Future<Output = Result<Outcome, Stopped>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    if parts.headers.keys().any(headers::is_ours) {
        let ours: Vec<_> = parts.headers.keys().filter(|name| headers::is_ours(name)).cloned().collect();
        for name in ours {
            parts.headers.remove(name);
        }
    }
    async move {
        let (status, headers, extensions) = (parts.status, &parts.headers, &parts.extensions);
        let head = ResponseHead { status, headers, extensions };
        let mut body = std::pin::pin!(body);
        let mut collected = BodyBuffer::default();
        let overflow = loop {
            match next_piece(body.as_mut()).await {
                Some(Ok(data)) if collected.len() + data.len() > route.response_bytes_max => break data,
                Some(Ok(data)) => collected.push(data),
                Some(Err(_)) => return Err(broke_off()),
                None => {
                    let body = collected.into_bytes();
                    let action = head.action(route, prior, Some(&body));
                    let ending = ending(route, action, status, || {
                        if !head.is_delimited() {
                            return omitted(status);
                        }
                        let kept = snapshot::encode(status, headers, &body, &route.omitted);
                        if kept.len() > slot.in_flight.onceward().body_bytes_max() {
                            return omitted(status);
                        }
                        match verdict(status) {
                            Verdict::Succeeded => Outcome::succeeded(kept),
                            Verdict::Failed => Outcome::failed(kept),
                        }
                    });
                    *output = ServiceOutput::Whole(Response::from_parts(parts, ResponseBody::whole(body)));
                    return ending;
                }
            }
        };
        let action = head.action(route, prior, None);
        let (sender, live) = ResponseBody::live();
        let live_end = LiveEnd { sender, left: announced(headers), held_back: None };
        slot.offer(Response::from_parts(parts, live));
        let live_end = Box::pin(pass_on(collected.into_bytes(), overflow, body, live_end)).await?;
        *output = ServiceOutput::Live(live_end);
        ending(route, action, status, || omitted(status))
    }
}

/// The outcome of a response that is not kept.
fn omitted(status: StatusCode) -> Outcome {
    Outcome::omitted(verdict(status), status.as_str().to_owned())
}

/// Sends what has arrived and what still arrives.
async fn pass_on<B>(
    first: Bytes,
    second: Bytes,
    mut rest: std::pin::Pin<&mut B>,
    mut live_end: LiveEnd,
) -> Result<LiveEnd, Stopped>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    live_end.pass(first).await;
    live_end.pass(second).await;
    while let Some(piece) = next_piece(rest.as_mut()).await {
        match piece {
            Ok(data) => live_end.pass(data).await,
            Err(error) => {
                let _ = live_end.sender.send(Piece::Broken(error)).await;
                return Err(broke_off());
            }
        }
    }
    Ok(live_end)
}

/// The next data of a body. Trailers are not replayed, so they are not passed on either.
async fn next_piece<B>(mut body: std::pin::Pin<&mut B>) -> Option<Result<Bytes, BoxError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    loop {
        match body.frame().await?.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error.into())),
        }
    }
}

fn broke_off() -> Stopped {
    Stopped::unknown("the response broke off")
}

/// What a response means for its receipt.
fn ending(
    route: &Route,
    action: Action,
    status: StatusCode,
    outcome: impl FnOnce() -> Outcome,
) -> Result<Outcome, Stopped> {
    match (action, route.own_retention(status)) {
        (Action::Replay, Some(retention)) => Ok(outcome().with_retention(retention)),
        (Action::Replay, None) => Ok(outcome()),
        (Action::Retry, _) => {
            Err(Stopped::before_effect(format!("the service answered {status}, which frees the key")))
        }
        (Action::Unknown, _) => Err(Stopped::unknown(format!("the service answered {status}"))),
    }
}

/// The length of the body according to `Content-Length`.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The sending end of a live response. A client may count bytes instead of waiting for the end, so the piece that
/// completes the announced length is held back until the receipt is written.
struct LiveEnd {
    sender: mpsc::Sender<Piece>,
    left: Option<u64>,
    held_back: Option<Bytes>,
}

impl LiveEnd {
    async fn pass(&mut self, data: Bytes) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(data.len() as u64);
            if *left == 0 && self.held_back.is_none() {
                self.held_back = Some(data);
                return;
            }
        }
        // If the client is gone, the rest is still read: a client must not interrupt the service.
        let _ = self.sender.send(Piece::Data(data)).await;
    }

    async fn send(self) {
        if let Some(data) = self.held_back {
            let _ = self.sender.send(Piece::Data(data)).await;
        }
        let _ = self.sender.send(Piece::End).await;
    }
}
