//! Converts a response into the outcome that it is replayed from.

use http::Response;
use onceward::{Outcome, Verdict};

use crate::action::StatusClass;
use crate::route::{Route, verdict};
use crate::snapshot;

/// The outcome that a route keeps of a response; without the body if that is over the limit.
pub(crate) fn outcome<B: AsRef<[u8]>>(route: &Route, response: &Response<B>) -> Outcome {
    let (status, body) = (response.status(), response.body().as_ref());
    let outcome = if body.len() > route.response_bytes_max {
        Outcome::omitted(verdict(status), status.as_str().to_owned())
    } else {
        let kept = snapshot::encode(status, response.headers(), body, &route.omitted);
        match verdict(status) {
            Verdict::Succeeded => Outcome::succeeded(kept),
            Verdict::Failed => Outcome::failed(kept),
        }
    };
    match route.own_retention(StatusClass::of(status)) {
        Some(retention) => outcome.with_retention(retention).expect("checked when the route was built"),
        None => outcome,
    }
}
