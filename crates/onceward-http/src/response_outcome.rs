//! Converts a response into the outcome that it is replayed from.

use http::Response;
use onceward::{Outcome, Verdict};

use crate::response_action::UndelimitedBody;
use crate::route::{Route, verdict};
use crate::snapshot;

/// The outcome that a route keeps of a response; without the body if that is over the limit.
pub(crate) fn outcome<B: AsRef<[u8]>>(route: &Route, response: &Response<B>) -> Outcome {
    let (status, body) = (response.status(), response.body().as_ref());
    // Over such a connection a body that was cut off looks whole.
    let trusted = response.extensions().get::<UndelimitedBody>().is_none();
    let outcome = if body.len() > route.response_bytes_max || !trusted {
        Outcome::omitted(verdict(status), status.as_str().to_owned())
    } else {
        let kept = snapshot::encode(status, response.headers(), body, &route.omitted);
        match verdict(status) {
            Verdict::Succeeded => Outcome::succeeded(kept),
            Verdict::Failed => Outcome::failed(kept),
        }
    };
    match route.own_retention(status) {
        Some(retention) => outcome.with_retention(retention),
        None => outcome,
    }
}
