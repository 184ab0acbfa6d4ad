//! Runs one intent: calls the inner service once the claim is granted, and records its response in the receipt.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use onceward::{
    Answer, Applied, Ask, Completed, Effect, Error, ErrorKind, Fingerprint, Id, Lease, Outcome, Prior,
    PriorReceipt, Recorded, Refusal, Stopped, Verdict,
};
use tower_service::Service;

use crate::action::Action;
use crate::admission::NewKeyRefusal;
use crate::answer;
use crate::body::{BoxError, ResponseBody};
use crate::body_buffer::BodyBuffer;
use crate::closes::{self, Closing};
use crate::headers::{self, ONCEWARD_FOUND, ONCEWARD_UNGUARDED};
use crate::intent_future::{ResponseSlot, ServiceResult};
use crate::late_record::{self, LateRecord};
use crate::layer::LayerState;
use crate::live_end::LiveEnd;
use crate::permits::{self, Permits};
use crate::problem::Problem;
use crate::reconcile;
use crate::request_body::WaitingRequest;
use crate::request_id::RequestId;
use crate::response_action::ResponseHead;
use crate::route::{OnStoreFailure, Route, verdict};
use crate::same_request::{self, AboutToRun};
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
/// Not an `async fn`, which would keep every argument twice.
#[expect(clippy::too_many_lines, reason = "one match over how a run ends")]
pub(crate) fn run<S, I, B>(
    slot: Arc<ResponseSlot<B>>,
    waiting: Box<WaitingRequest<S>>,
    asks: Asks,
    closing: Option<Box<Closing>>,
) -> impl Future<Output = Option<ServiceResult<B, S::Error>>> + Send
where
    S: Service<Request<I>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Send,
    I: From<Bytes> + Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut waiting = Some(waiting);
    async move {
        let shared = slot.in_flight.shared();
        let route = &shared.route;
        let caller = asks.caller;
        // A request that must not run now can still get the answer of an earlier run.
        if let Err(problem) = permits::check(shared, asks.current.id(), parts_of(waiting.as_deref())) {
            let parts = parts_of(waiting.as_deref());
            return Some(Ok(Box::pin(earlier_answer(shared, &asks, parts, problem)).await));
        }
        if let Err(refusal) = permits::check_new_key(shared, asks.current.id(), parts_of(waiting.as_deref()))
            && let Some(answer) = Box::pin(answer_unless_begun(shared, &asks, refusal)).await
        {
            return Some(Ok(answer));
        }
        let id = asks.current.id().clone();
        let fingerprint = *asks.current.fingerprint();
        let other_ids: Vec<Id> = asks.each().skip(1).map(|ask| ask.id().clone()).collect();
        // Held until the end, also while a live response is being sent.
        let mut permit = None;
        let mut output = ServiceOutput::Nothing;
        let (output_here, waiting_here, slot_here) = (&mut output, &mut waiting, &slot);
        let (permit_here, id_here) = (&mut permit, &id);
        // Not an async closure, which would keep the lease twice.
        let work = move |lease: Lease| async move {
            let prior = lease.prior();
            // In a block of its own, like what follows: what is only used between two waits is then no part of the future.
            let refused = {
                let mut admitted = permits::enter(shared, id_here, parts_of(waiting_here.as_deref()));
                if let (true, Some(rule), Prior::Nothing) = (admitted.is_ok(), route.same_request, prior) {
                    let request = AboutToRun { id: id_here.clone(), fingerprint, caller };
                    let looked = Box::pin(same_request::find_other_key(shared, rule, request)).await;
                    admitted = looked.and(admitted);
                }
                if let (Ok(permits), Prior::Nothing) = (&mut admitted, prior)
                    && let Err(problem) =
                        permits.begin_key(shared, id_here, parts_of(waiting_here.as_deref()))
                {
                    admitted = Err(problem);
                }
                match admitted {
                    Ok(taken) => {
                        *permit_here = Some(taken);
                        None
                    }
                    Err(problem) => Some(problem),
                }
            };
            if let Some(problem) = refused {
                *output_here = ServiceOutput::TurnedAway(problem);
                return Err(Stopped::before_effect("it was refused before it began"));
            }
            slot_here.in_flight.runs();
            let mut waiting = waiting_here.take().expect("the work is run once");
            if let Err(problem) = close_first(shared, closing, &mut waiting.parts.headers).await {
                permit_here.iter_mut().for_each(Permits::key_freed);
                *output_here = ServiceOutput::TurnedAway(problem);
                return Err(Stopped::before_effect("what it undoes could not be closed"));
            }
            let request_id = RequestId::of(&waiting.parts.headers, slot_here.in_flight.fields);
            let transacting;
            let served = {
                let mut request = Request::from_parts(waiting.parts, I::from(waiting.body));
                transacting = hand_in_lease(shared, &mut request, lease);
                waiting.service.call(request)
            }
            .await;
            if let (Ok(response), Some(permit)) = (&served, &*permit_here) {
                permit.answered(response.status());
            }
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
            ended.map_err(|stopped| {
                if stopped.effect() == Effect::None {
                    permit_here.iter_mut().for_each(Permits::key_freed);
                }
                request_id.noted(stopped)
            })
        };
        let answer = if asks.is_one() {
            shared.onceward.run(asks.current, work).await
        } else {
            asks.run(&shared.onceward, work).await
        };
        // Nearly every run. A response is large: it is changed where it is, and moved once.
        if let (Ok(Answer::Completed(ran)), ServiceOutput::Whole(response)) = (&answer, &mut output)
            && !ran.replayed
            && ran.recorded != Recorded::NotYet
        {
            answer::add_expiry(response.headers_mut(), ran.expires_in);
            if let ServiceOutput::Whole(response) = output {
                return Some(Ok(response));
            }
        }
        Some(match (answer, output) {
            (answer, ServiceOutput::Live(end)) => {
                if Box::pin(completes(shared, &id, fingerprint, &answer)).await {
                    Box::pin(end.send()).await;
                }
                return slot.take_head().map(Ok);
            }
            (
                Ok(Answer::Completed(ran @ Completed { recorded: Recorded::NotYet, replayed: false, .. })),
                ServiceOutput::Whole(mut response),
            ) => Ok(match Box::pin(late_record::wait(shared, &id, fingerprint, &ran)).await {
                LateRecord::Recorded(recorded) => {
                    answer::add_expiry(response.headers_mut(), recorded.expires_in);
                    response
                }
                LateRecord::NotYet => answer::unrecorded(shared, response),
                LateRecord::Other(answer) => answer::of(shared, caller, answer),
                LateRecord::GivenUp => answer::refuse(shared, answer::TRY_AGAIN),
            }),
            (Ok(answer), _) => {
                reconcile_unknown(
                    shared,
                    &answer,
                    std::iter::once(&id).chain(&other_ids),
                    parts_of(waiting.as_deref()),
                );
                Ok(answer::of(shared, caller, answer))
            }
            // The route does not keep this response; the client still gets it.
            (Err(_), ServiceOutput::Whole(response)) => Ok(response),
            (Err(_), ServiceOutput::Failed(error)) => Err(error),
            (Err(_), ServiceOutput::TurnedAway(problem)) => Ok(answer::refuse(shared, problem)),
            (Err(error), ServiceOutput::Nothing) => {
                let waiting = waiting.filter(|waiting| {
                    may_pass_unguarded(route, &error) && !closes::needs_guard(route, &waiting.parts.headers)
                });
                Box::pin(run_unguarded(shared, waiting, &id, error)).await
            }
        })
    }
}

/// The head of the request, until it runs.
fn parts_of<S>(waiting: Option<&WaitingRequest<S>>) -> Option<&Parts> {
    waiting.map(|waiting| &waiting.parts)
}

/// The answer of an earlier run to a request that must not run now.
async fn earlier_answer<B>(
    shared: &Arc<LayerState>,
    asks: &Asks,
    waiting: Option<&Parts>,
    problem: Problem,
) -> Response<ResponseBody<B>> {
    match asks.answer_without_running(&shared.onceward).await {
        Ok(Some(answer)) => {
            reconcile_unknown(shared, &answer, asks.each().map(Ask::id), waiting);
            answer::of(shared, asks.caller, answer)
        }
        Ok(None) => answer::refuse(shared, problem),
        Err(error) => answer::of_error(shared, &error),
    }
}

/// The answer to a request of a caller that may begin no new key; `None` if its key has a receipt, and is no new one.
async fn answer_unless_begun<B>(
    shared: &Arc<LayerState>,
    asks: &Asks,
    refusal: NewKeyRefusal<'_>,
) -> Option<Response<ResponseBody<B>>> {
    for ask in asks.each() {
        match shared.onceward.receipt(ask.id()).await {
            Ok(Some(_)) => return None,
            Ok(None) => {}
            Err(error) => return Some(answer::of_error(shared, &error)),
        }
    }
    // It may be a duplicate of one whose receipt is being written.
    Some(match asks.answer_without_running(&shared.onceward).await {
        Ok(Some(answer)) => answer::of(shared, asks.caller, answer),
        Ok(None) => answer::refuse(shared, refusal.refuse()),
        Err(error) => answer::of_error(shared, &error),
    })
}

/// Closes what an undo undoes, and tells the service what was found.
async fn close_first(
    shared: &LayerState,
    closing: Option<Box<Closing>>,
    headers: &mut HeaderMap,
) -> Result<(), Problem> {
    if !shared.route.closes.is_empty() {
        headers.remove(ONCEWARD_FOUND);
    }
    if let Some(closing) = closing {
        let found = Box::pin(closing.close(&shared.onceward, &shared.route.policy)).await?;
        headers.insert(ONCEWARD_FOUND, HeaderValue::from_static(found.name()));
    }
    Ok(())
}

/// Gives the service the lease of its run, and on a route whose effects are in a transaction what commits its response;
/// that is boxed, because few routes are of this kind.
fn hand_in_lease<I>(
    shared: &Arc<LayerState>,
    request: &mut Request<I>,
    lease: Lease,
) -> Option<Box<ResponseLease>> {
    let is_transacting = shared.route.has_effects_in_transaction();
    let transacting = is_transacting.then(|| Box::new(ResponseLease::new(lease.clone(), shared)));
    if let Some(transacting) = &transacting {
        request.extensions_mut().insert(ResponseLease::clone(transacting));
    }
    request.extensions_mut().insert(lease);
    transacting
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
fn reconcile_unknown<'i>(
    shared: &Arc<LayerState>,
    answer: &Answer,
    ids: impl IntoIterator<Item = &'i Id>,
    waiting: Option<&Parts>,
) {
    if let Answer::Refused(Refusal::OutcomeUnknown) = answer
        && let Some(reconciler) = &shared.route.reconciler
        && let Some(parts) = waiting
    {
        let ids: Arc<[Id]> = ids.into_iter().cloned().collect();
        for id in &*ids {
            reconcile::start(shared, reconciler, id, &ids, parts);
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

/// The answer to a request whose claim failed: that of the service without a guard, where it may be passed on.
async fn run_unguarded<S, I, B>(
    shared: &LayerState,
    waiting: Option<Box<WaitingRequest<S>>>,
    id: &Id,
    error: Error,
) -> ServiceResult<B, S::Error>
where
    S: Service<Request<I>, Response = Response<B>>,
    I: From<Bytes>,
{
    let Some(mut waiting) = waiting else { return Ok(answer::of_error(shared, &error)) };
    match permits::enter(shared, id, Some(&waiting.parts)) {
        Ok(permits) => {
            shared.metrics.passed_unguarded.one();
            let request = Request::from_parts(waiting.parts, I::from(waiting.body));
            let served = waiting.service.call(request).await;
            if let Ok(response) = &served {
                permits.answered(response.status());
            }
            pass_unguarded(served)
        }
        Err(problem) => Ok(answer::refuse(shared, problem)),
    }
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
        let metrics = slot.in_flight.shared().metrics.clone();
        let live_end = LiveEnd::new(sender, announced(headers), route.write_timeout, metrics);
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
                live_end.break_off(error).await;
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
