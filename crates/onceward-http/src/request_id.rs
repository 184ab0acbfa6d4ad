//! The id that a request carries for its logs. It is noted where an outcome is unknown, so that an operator finds the
//! request in the logs of the client and of the service.

use http::HeaderMap;
use onceward::{Effect, Stopped};

/// Longest id that is noted.
const CHARACTERS_MAX: usize = 128;

/// `X-Request-Id`, or the trace of `traceparent`; `None` if there is neither.
pub(crate) fn of(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = text("x-request-id").or_else(|| text("traceparent")?.split('-').nth(1))?;
    Some(id.chars().take(CHARACTERS_MAX).collect()).filter(|id: &String| !id.is_empty())
}

/// The same end, with the id of its request if the effect may have happened.
pub(crate) fn noted(stopped: Stopped, request_id: Option<&str>) -> Stopped {
    match request_id {
        Some(id) if stopped.effect() == Effect::Maybe => {
            Stopped::unknown(format!("{stopped}; request id {id}"))
        }
        _ => stopped,
    }
}
