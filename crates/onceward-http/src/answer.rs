//! Converts the engine's answers, refusals and errors into HTTP responses.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use onceward::{Answer, Error, ErrorKind, OnUnknown, Refusal};

use crate::body::ResponseBody;
use crate::fingerprint::Caller;
use crate::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, ONCEWARD_RECORDED};
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::route::Route;
use crate::snapshot;

/// A refusal as a response, counted.
pub(crate) fn refuse<B>(shared: &LayerState, problem: Problem) -> Response<ResponseBody<B>> {
    shared.metrics.refused(&problem);
    let status = shared.route.status_of(&problem);
    problem.into_response(status).map(ResponseBody::whole)
}

pub(crate) fn empty<B>(status: StatusCode) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// The response to an answer from a receipt, or to a refusal.
pub(crate) fn of<B>(shared: &LayerState, caller: Caller, answer: Answer) -> Response<ResponseBody<B>> {
    let ran = match answer {
        Answer::Completed(ran) => ran,
        Answer::Refused(refusal) => return refuse(shared, problem_of(&shared.route, caller, refusal)),
    };
    let Some(response) = snapshot::decode_as(ran.outcome.body(), ResponseBody::whole) else {
        tracing::error!("a receipt does not hold a response");
        return refuse(shared, Problem::StoreUnavailable);
    };
    // A response is large: it is moved once.
    let mut response = response;
    add_expiry(response.headers_mut(), ran.expires_in);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The response to a failure.
pub(crate) fn of_error<B>(shared: &LayerState, error: &Error) -> Response<ResponseBody<B>> {
    refuse(shared, problem_of_error(&shared.route, error))
}

/// Adds the time until which a retry gets the same answer, if there is a limit.
pub(crate) fn add_expiry(headers: &mut HeaderMap, expires_in: Option<Duration>) {
    if let Some(date) = expires_in.and_then(date_in) {
        headers.insert(IDEMPOTENCY_EXPIRES, date);
    }
}

/// Says that the receipt is not written yet. Nothing is promised about how long it is kept.
pub(crate) fn unrecorded<B>(
    shared: &LayerState,
    mut response: Response<ResponseBody<B>>,
) -> Response<ResponseBody<B>> {
    shared.metrics.sent_unrecorded.one();
    response.headers_mut().insert(ONCEWARD_RECORDED, HeaderValue::from_static("not-yet"));
    response
}

/// The date in this time as a header value. Cached, because most requests of one second have the same one.
fn date_in(duration: Duration) -> Option<HeaderValue> {
    thread_local! {
        static LAST: RefCell<(u64, Option<HeaderValue>)> = const { RefCell::new((0, None)) };
    }
    let at = SystemTime::now().checked_add(duration)?;
    let second = at.duration_since(UNIX_EPOCH).ok()?.as_secs();
    LAST.with_borrow_mut(|(last, date)| {
        if *last != second || date.is_none() {
            // HTTP dates end with the year 9999: later ones are left out.
            const LAST_SECOND: u64 = 253_402_300_799;
            (*last, *date) = (second, None);
            if second <= LAST_SECOND {
                *date = HeaderValue::try_from(httpdate::fmt_http_date(at)).ok();
            }
        }
        date.clone()
    })
}

fn problem_of(route: &Route, caller: Caller, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::KeyReused if caller == Caller::Anonymous => Problem::KeyReusedAnonymously,
        Refusal::KeyReused => Problem::KeyReused,
        Refusal::InProgress { retry_after } => Problem::InProgress { retry_after },
        Refusal::OutcomeUnknown => outcome_unknown(route),
        Refusal::ResponseNotStored { note, .. } => {
            let original_status = std::str::from_utf8(&note).ok().and_then(|note| note.parse().ok());
            Problem::ResponseNotStored { original_status }
        }
        Refusal::KeyExpired => Problem::KeyExpired,
        Refusal::Dead { .. } => Problem::Dead,
        Refusal::Closed(_) => Problem::Closed,
        // A reason that this version does not know cannot be retried safely.
        _ => Problem::OutcomeUnknown { retry_after: None },
    }
}

fn problem_of_error(route: &Route, error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Overloaded => Problem::Overloaded { retry_after: SOON },
        ErrorKind::Conflict => Problem::InProgress { retry_after: SOON },
        // A run that was interrupted has committed nothing: the outcome is known, and the next try runs.
        ErrorKind::LeaseLost | ErrorKind::Stopped if route.has_effects_in_transaction() => {
            Problem::InProgress { retry_after: SOON }
        }
        // The run was interrupted. The next try runs it, or waits for the run that has taken over.
        ErrorKind::LeaseLost => Problem::OutcomeUnknown { retry_after: Some(SOON) },
        ErrorKind::Stopped => outcome_unknown(route),
        _ => {
            tracing::error!(%error, "the store of receipts failed");
            Problem::StoreUnavailable
        }
    }
}

/// A retry is worthwhile if a hook or another run will resolve the unknown outcome; if an operator must settle it, it
/// is not.
fn outcome_unknown(route: &Route) -> Problem {
    let by_itself = route.is_reconciled() || route.policy.on_unknown() == OnUnknown::Retry;
    Problem::OutcomeUnknown { retry_after: by_itself.then_some(SOON) }
}

/// The answer to a run that may be replaced by another one.
pub(crate) const TRY_AGAIN: Problem = Problem::OutcomeUnknown { retry_after: Some(SOON) };

/// The `Retry-After` if the duration is not known.
pub(crate) const SOON: Duration = Duration::from_secs(1);
