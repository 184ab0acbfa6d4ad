//! What a response means for its key: what its maker says of it, then the problem that it carries, then the table of
//! its route.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Extensions, HeaderMap, StatusCode};
use onceward::Prior;

use crate::action::{Action, ReportedEffect};
use crate::problem::TYPE_PREFIX;
use crate::route::Route;

/// Among the extensions of a response: its body ends where its connection ends, with neither a length nor chunks, so
/// that a body that was cut off looks whole. Such a response is passed on, and is not replayed: a retry gets
/// `response-not-stored` with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndelimitedBody;

/// The head of a response, as far as it says what became of the request.
#[derive(Clone, Copy)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
}

impl ResponseHead<'_> {
    /// What it means for its key. The body is `None` while it is not complete.
    pub(crate) fn action(self, route: &Route, prior: Prior, body: Option<&[u8]>) -> Action {
        let Self { status, headers, extensions } = self;
        let said = if extensions.is_empty() { None } else { said(extensions) };
        said.or_else(|| body.and_then(|body| of_problem(status, headers, body))).unwrap_or_else(|| {
            // Only of this status does it matter.
            let retry_after = status == StatusCode::CONFLICT && headers.contains_key(RETRY_AFTER);
            route.action_of_run(status, retry_after, prior)
        })
    }

    /// Whether its body can be trusted to be complete.
    pub(crate) fn is_delimited(self) -> bool {
        self.extensions.is_empty() || self.extensions.get::<UndelimitedBody>().is_none()
    }
}

fn said(extensions: &Extensions) -> Option<Action> {
    let effect = extensions.get::<ReportedEffect>().map(|effect| Action::from(*effect));
    effect.or_else(|| extensions.get().copied())
}

/// What a problem of another Onceward behind this one means. It says more than its status.
fn of_problem(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Action> {
    if !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let media = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = media.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/problem+json") {
        return None;
    }
    let problem: serde_json::Value = serde_json::from_slice(body).ok()?;
    match problem.get("type")?.as_str()?.strip_prefix(TYPE_PREFIX)? {
        "overloaded" | "store-unavailable" | "quota-exceeded" | "in-progress" => Some(Action::Retry),
        "outcome-unknown" => Some(Action::Unknown),
        _ => None,
    }
}

#[cfg(test)]
#[path = "response_action_test.rs"]
mod tests;
