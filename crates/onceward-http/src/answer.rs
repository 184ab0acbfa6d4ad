//! From what the engine says to what the client gets.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use onceward::{Answer, Error, ErrorKind, OnUnknown, Refusal};

use crate::body::ResponseBody;
use crate::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED};
use crate::layer::Shared;
use crate::problem::Problem;
use crate::route::Route;
use crate::snapshot;

/// A refusal as a response, counted.
pub(crate) fn refuse<B>(shared: &Shared, problem: Problem) -> Response<ResponseBody<B>> {
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
pub(crate) fn of<B>(shared: &Shared, answer: Answer) -> Response<ResponseBody<B>> {
    let ran = match answer {
        Answer::Completed(ran) => ran,
        Answer::Refused(refusal) => return refuse(shared, problem_of(&shared.route, refusal)),
    };
    let Some(response) = snapshot::decode(ran.outcome.body()) else {
        tracing::error!("a receipt does not hold a response");
        return refuse(shared, Problem::StoreUnavailable);
    };
    let mut response = with_expiry(response.map(ResponseBody::whole), ran.expires_in);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The response to a failure.
pub(crate) fn of_error<B>(shared: &Shared, error: &Error) -> Response<ResponseBody<B>> {
    refuse(shared, problem_of_error(&shared.route, error))
}

/// Adds until when a retry gets the same answer, if there is an end to it.
pub(crate) fn with_expiry<B>(
    mut response: Response<ResponseBody<B>>,
    expires_in: Option<Duration>,
) -> Response<ResponseBody<B>> {
    if let Some(date) = expires_in.and_then(date_in) {
        response.headers_mut().insert(IDEMPOTENCY_EXPIRES, date);
    }
    response
}

/// A date as it stands in a field. Most requests of one second have the same one.
fn date_in(duration: Duration) -> Option<HeaderValue> {
    thread_local! {
        static LAST: RefCell<(u64, Option<HeaderValue>)> = const { RefCell::new((0, None)) };
    }
    let at = SystemTime::now().checked_add(duration)?;
    let second = at.duration_since(UNIX_EPOCH).ok()?.as_secs();
    LAST.with_borrow_mut(|(last, date)| {
        if *last != second || date.is_none() {
            // Beyond the year 9999 there is no such date: then nothing is promised in the field.
            const LAST_SECOND: u64 = 253_402_300_799;
            (*last, *date) = (second, None);
            if second <= LAST_SECOND {
                *date = HeaderValue::try_from(httpdate::fmt_http_date(at)).ok();
            }
        }
        date.clone()
    })
}

fn problem_of(route: &Route, refusal: Refusal) -> Problem {
    match refusal {
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
        ErrorKind::Overloaded => Problem::Overloaded,
        ErrorKind::Conflict => Problem::InProgress { retry_after: SOON },
        // What was cut short has committed nothing: there is no doubt, only another try.
        ErrorKind::LeaseLost | ErrorKind::Stopped if route.has_effects_in_transaction() => {
            Problem::InProgress { retry_after: SOON }
        }
        // The work was cut short. The next try runs it, or waits for the one that runs it now.
        ErrorKind::LeaseLost => Problem::OutcomeUnknown { retry_after: Some(SOON) },
        ErrorKind::Stopped => outcome_unknown(route),
        _ => {
            tracing::error!(%error, "the store of receipts failed");
            Problem::StoreUnavailable
        }
    }
}

/// Whether coming back may bring an answer depends on who ends the doubt: a hook and another run do so by
/// themselves, a person does not.
fn outcome_unknown(route: &Route) -> Problem {
    let by_itself = route.is_reconciled() || route.policy.on_unknown() == OnUnknown::Retry;
    Problem::OutcomeUnknown { retry_after: by_itself.then_some(SOON) }
}

/// When to come back where nothing says how long it takes.
pub(crate) const SOON: Duration = Duration::from_secs(1);
