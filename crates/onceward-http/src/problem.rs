//! The refusals of the layer as `application/problem+json` responses (RFC 9457).

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::precondition::EntityTag;

/// What the type of every problem begins with.
pub(crate) const TYPE_PREFIX: &str = "urn:onceward:problem:";

/// Why a request was refused. The type's name never changes; the status can be mapped per route.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The route wants a key.
    KeyMissing,
    /// The same, where the key is not in `Idempotency-Key`: what to send.
    KeyMissingFrom(String),
    /// The key cannot be used, and why.
    KeyMalformed(String),
    /// The same key came with another request.
    KeyReused,
    /// The same, by a caller without credentials, so that a field that differs may be one.
    KeyReusedAnonymously,
    /// An earlier request with this key is still running.
    InProgress {
        /// When to retry.
        retry_after: Duration,
    },
    /// It is unknown whether an earlier request with this key took effect.
    OutcomeUnknown {
        /// When to retry, if that may bring an answer: it is being reconciled, or may run again.
        retry_after: Option<Duration>,
    },
    /// The maximum number of tries was reached; an operator must decide.
    Dead,
    /// It was closed (cancelled, discarded, or undone before it began), and will not be run.
    Closed,
    /// It is done, but its answer was too large to keep, had no reliable end, or was erased.
    ResponseNotStored {
        /// The status it had, if that was noted.
        original_status: Option<u16>,
    },
    /// The same request came under another key a short time ago.
    SameRequestOtherKey,
    /// The key is past its retention.
    KeyExpired,
    /// The body is over the bound, in bytes.
    BodyTooLarge(usize),
    /// The store cannot be reached.
    StoreUnavailable,
    /// Too much is in flight.
    Overloaded {
        /// When to retry.
        retry_after: Duration,
    },
    /// The caller has too much in flight.
    QuotaExceeded {
        /// When to retry.
        retry_after: Duration,
    },
    /// It cannot be told whose request it is, and why.
    ScopeMissing(String),
    /// A webhook is not signed by its sender, or its event has no id, and why.
    SignatureRefused(String),
    /// The route wants a precondition on every update.
    PreconditionRequired,
    /// The precondition does not hold: the client expected another version.
    PreconditionFailed {
        /// The versions that the client expected, if it named them.
        expected: Vec<EntityTag>,
        /// The version that is there, if there is one and it is known.
        current: Option<EntityTag>,
    },
    /// The precondition cannot be read, and why.
    PreconditionMalformed(String),
    /// The service behind a gateway cannot be reached; nothing was sent.
    UpstreamUnreachable,
    /// The request was sent to the service behind a gateway, and no answer came.
    UpstreamTimeout,
}

impl Problem {
    /// Every name there is, for publication.
    pub const NAMES: [&'static str; 21] = [
        "key-missing",
        "key-malformed",
        "key-reused",
        "in-progress",
        "outcome-unknown",
        "dead",
        "closed",
        "response-not-stored",
        "same-request-other-key",
        "key-expired",
        "body-too-large",
        "store-unavailable",
        "overloaded",
        "quota-exceeded",
        "scope-missing",
        "signature-refused",
        "precondition-required",
        "precondition-failed",
        "precondition-malformed",
        "upstream-unreachable",
        "upstream-timeout",
    ];

    /// One of each, in the order of [`Problem::NAMES`], for publication.
    pub(crate) fn examples() -> [Self; 21] {
        let retry_after = Duration::from_secs(1);
        [
            Self::KeyMissing,
            Self::KeyMalformed(String::new()),
            Self::KeyReused,
            Self::InProgress { retry_after },
            Self::OutcomeUnknown { retry_after: None },
            Self::Dead,
            Self::Closed,
            Self::ResponseNotStored { original_status: None },
            Self::SameRequestOtherKey,
            Self::KeyExpired,
            Self::BodyTooLarge(0),
            Self::StoreUnavailable,
            Self::Overloaded { retry_after },
            Self::QuotaExceeded { retry_after },
            Self::ScopeMissing(String::new()),
            Self::SignatureRefused(String::new()),
            Self::PreconditionRequired,
            Self::PreconditionFailed { expected: Vec::new(), current: None },
            Self::PreconditionMalformed(String::new()),
            Self::UpstreamUnreachable,
            Self::UpstreamTimeout,
        ]
    }

    /// The last part of its type.
    pub fn name(&self) -> &'static str {
        self.facts().0
    }

    /// Its type.
    pub fn urn(&self) -> String {
        format!("{TYPE_PREFIX}{}", self.name())
    }

    pub(crate) fn title(&self) -> &'static str {
        self.facts().2
    }

    /// Its place among [`Problem::NAMES`].
    pub(crate) fn index(&self) -> usize {
        Self::NAMES.iter().position(|name| *name == self.name()).expect("every name is listed")
    }

    /// Its status, unless the route maps it to another.
    pub fn status(&self) -> StatusCode {
        self.facts().1
    }

    /// The name, the status, the title, and whether the same request may be sent again as it is.
    fn facts(&self) -> (&'static str, StatusCode, &'static str, bool) {
        match self {
            Self::KeyMissing | Self::KeyMissingFrom(_) => {
                ("key-missing", StatusCode::BAD_REQUEST, "An idempotency key is required", false)
            }
            Self::KeyMalformed(_) => {
                ("key-malformed", StatusCode::BAD_REQUEST, "The idempotency key cannot be used", false)
            }
            Self::KeyReused | Self::KeyReusedAnonymously => (
                "key-reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The Idempotency-Key was used for another request",
                false,
            ),
            Self::InProgress { .. } => (
                "in-progress",
                StatusCode::CONFLICT,
                "The first request with this key is still running",
                true,
            ),
            Self::OutcomeUnknown { retry_after } => (
                "outcome-unknown",
                StatusCode::CONFLICT,
                "The outcome of the first request is unknown",
                retry_after.is_some(),
            ),
            Self::Dead => ("dead", StatusCode::CONFLICT, "The request was given up after its tries", false),
            Self::Closed => {
                ("closed", StatusCode::CONFLICT, "The request was closed and will not run", false)
            }
            Self::ResponseNotStored { .. } => (
                "response-not-stored",
                StatusCode::CONFLICT,
                "The request is done, its response was not stored",
                false,
            ),
            Self::SameRequestOtherKey => (
                "same-request-other-key",
                StatusCode::CONFLICT,
                "The same request was sent under another key",
                false,
            ),
            Self::KeyExpired => {
                ("key-expired", StatusCode::GONE, "The Idempotency-Key is past its retention", false)
            }
            Self::BodyTooLarge(_) => {
                ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large", false)
            }
            Self::StoreUnavailable => (
                "store-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The store of receipts cannot be reached",
                true,
            ),
            Self::Overloaded { .. } => {
                ("overloaded", StatusCode::SERVICE_UNAVAILABLE, "Too much work is in flight", true)
            }
            Self::QuotaExceeded { .. } => (
                "quota-exceeded",
                StatusCode::TOO_MANY_REQUESTS,
                "This caller has too much work in flight",
                true,
            ),
            // Not 401: that would have to say how to authenticate, which only the service knows.
            Self::ScopeMissing(_) => {
                ("scope-missing", StatusCode::BAD_REQUEST, "The caller cannot be identified", false)
            }
            Self::SignatureRefused(_) => (
                "signature-refused",
                StatusCode::FORBIDDEN,
                "The signature of the event is not accepted",
                false,
            ),
            Self::PreconditionRequired => (
                "precondition-required",
                StatusCode::PRECONDITION_REQUIRED,
                "An update needs a precondition here",
                false,
            ),
            Self::PreconditionFailed { .. } => (
                "precondition-failed",
                StatusCode::PRECONDITION_FAILED,
                "The resource is not in the expected version",
                false,
            ),
            Self::PreconditionMalformed(_) => {
                ("precondition-malformed", StatusCode::BAD_REQUEST, "The precondition cannot be read", false)
            }
            Self::UpstreamUnreachable => (
                "upstream-unreachable",
                StatusCode::BAD_GATEWAY,
                "The service behind this gateway cannot be reached",
                true,
            ),
            // The same request is safe to send again, whether this one ran or not: it runs at most once.
            Self::UpstreamTimeout => (
                "upstream-timeout",
                StatusCode::GATEWAY_TIMEOUT,
                "The service behind this gateway did not answer",
                true,
            ),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::KeyMissing => "Send an Idempotency-Key: one new random value per intent, the same one on every retry.".into(),
            Self::KeyMissingFrom(what) => what.clone(),
            Self::KeyMalformed(why) => format!("{why}."),
            Self::KeyReused => {
                "This key belongs to a request with other content. Use a new key for a new intent.".into()
            }
            Self::KeyReusedAnonymously => {
                "This key belongs to a request with other content or other header fields, which count because nothing \
                 names the caller. Use a new key for a new intent. A field that differs from try to try and names \
                 no caller belongs in `fingerprint.ignore_headers`."
                    .into()
            }
            Self::InProgress { .. } => "Nothing was done for this copy. Send it again later with the same key.".into(),
            Self::OutcomeUnknown { retry_after: None } => {
                "It may or may not have taken effect. It is not run again automatically; an operator has to settle it.".into()
            }
            Self::OutcomeUnknown { retry_after: Some(_) } => {
                "It may or may not have taken effect. Send it again later with the same key to learn more.".into()
            }
            Self::Dead => {
                "It was tried as often as allowed. It is not tried again until an operator retries it.".into()
            }
            Self::Closed => {
                "It was cancelled, discarded, or undone before it began. Use a new key for a new intent.".into()
            }
            Self::ResponseNotStored { .. } => {
                "It took effect once and is not run again. Its response was too large to be kept, had no \
                 reliable end, or was erased."
                    .into()
            }
            Self::SameRequestOtherKey => {
                "Nothing was done for this copy. A retry must have the key of the first try; for a second intent with the \
                 same content, wait until the window of this route is over."
                    .into()
            }
            Self::KeyExpired => "Retries with this key are no longer honoured. Use a new key for a new intent.".into(),
            Self::BodyTooLarge(max) => format!("At most {max} bytes are accepted here. Nothing was done."),
            Self::StoreUnavailable => {
                "Send it again later with the same key: whatever was done is not done again.".into()
            }
            Self::Overloaded { .. } | Self::QuotaExceeded { .. } | Self::UpstreamUnreachable => {
                "Nothing was done. Send it again later with the same key.".into()
            }
            Self::ScopeMissing(why) => format!("Nothing was done: {why}."),
            Self::PreconditionRequired => {
                "Read the resource and send its ETag in If-Match, or If-None-Match: * to create it. Nothing was done.".into()
            }
            Self::PreconditionFailed { expected, .. } if expected.is_empty() => {
                "The resource is not in the state that the precondition asks for. Read it before you send another request. \
                 Nothing was done."
                    .into()
            }
            Self::PreconditionFailed { .. } => {
                "The resource was changed meanwhile. Read it again, merge, and send the new version. Nothing was done.".into()
            }
            Self::PreconditionMalformed(why) | Self::SignatureRefused(why) => format!("Nothing was done: {why}."),
            Self::UpstreamTimeout => {
                "It may or may not have taken effect. It is safe to send it again with the same key.".into()
            }
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress { retry_after }
            | Self::QuotaExceeded { retry_after }
            | Self::Overloaded { retry_after } => Some(*retry_after),
            Self::OutcomeUnknown { retry_after } => *retry_after,
            Self::StoreUnavailable => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The response, with an instance that is also logged.
    pub fn into_response(self, status: StatusCode) -> Response<Bytes> {
        let (name, _, title, retryable) = self.facts();
        let instance = instance_urn();
        tracing::info!(problem = name, %instance, status = status.as_u16(), "refused");
        let mut body = serde_json::json!({
            "type": self.urn(),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
            "instance": instance,
            "retryable": retryable,
        });
        if let Self::ResponseNotStored { original_status: Some(original) } = self {
            body["original_status"] = original.into();
        }
        if let Self::PreconditionFailed { expected, current } = &self {
            if !expected.is_empty() {
                body["expected"] = expected.iter().map(ToString::to_string).collect();
            }
            body["current"] = current.as_ref().map(ToString::to_string).into();
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(LINK, HeaderValue::from_static("</.well-known/idempotency>; rel=\"describedby\""));
        if let Some(after) = self.retry_after() {
            // Whole seconds, rounded up: a retry that is too early is only refused again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

/// A random UUID (version 4) as a URN.
fn instance_urn() -> String {
    let mut bytes = [0; 16];
    // Without a random source only the instance is less unique.
    let _ = getrandom::fill(&mut bytes);
    let bits = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
#[path = "problem_test.rs"]
mod tests;
