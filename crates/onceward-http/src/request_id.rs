//! The id that a request carries for its logs. It is noted where an outcome is unknown, so that an operator finds the
//! request in the logs of the client and of the service.

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward::{Effect, Stopped};

use crate::request_fields::RequestFields;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Longest id that is noted.
const CHARACTERS_MAX: usize = 128;

/// The fields of a request that its id may be in, as they came: of most requests it is never read.
#[derive(Debug, Default)]
pub(crate) struct RequestId {
    own: Option<HeaderValue>,
    trace: Option<HeaderValue>,
}

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap, fields: RequestFields) -> Self {
        if !fields.has(RequestFields::REQUEST_ID) {
            return Self::default();
        }
        Self { own: headers.get(X_REQUEST_ID).cloned(), trace: headers.get(TRACEPARENT).cloned() }
    }

    /// `X-Request-Id`, or the trace of `traceparent`; `None` if there is neither.
    fn text(&self) -> Option<String> {
        fn text(line: Option<&HeaderValue>) -> Option<&str> {
            line?.to_str().ok()
        }
        let id = text(self.own.as_ref()).or_else(|| text(self.trace.as_ref())?.split('-').nth(1))?;
        Some(id.chars().take(CHARACTERS_MAX).collect()).filter(|id: &String| !id.is_empty())
    }

    /// The same end, with the id of its request if the effect may have happened.
    pub(crate) fn noted(&self, stopped: Stopped) -> Stopped {
        match stopped.effect() {
            Effect::Maybe => match self.text() {
                Some(id) => Stopped::unknown(format!("{stopped}; request id {id}")),
                None => stopped,
            },
            Effect::None => stopped,
        }
    }
}
