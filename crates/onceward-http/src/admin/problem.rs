//! The refusals of the admin routers as `application/problem+json`. Problems that the layer has too have the same names.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use onceward::{Applied, Error, ErrorKind, Refusal};
use serde_json::json;

use super::api::shape::ReceiptShown;
use crate::answer::SOON;
use crate::problem::Problem as Wire;

/// Why the admin routers refuse a request.
pub enum Problem {
    /// A problem of the HTTP layer.
    Wire(Wire),
    /// The request cannot be understood, and why.
    Invalid(String),
    /// The body is not declared as JSON.
    NotJson,
    /// There is no such path.
    NoSuchPath,
    /// There is such a path, but not for this method.
    NoSuchMethod,
    /// No token, or the wrong one.
    Unauthorized,
    /// The request comes from a page of another origin, and how that shows.
    Foreign(&'static str),
    /// The store failed, and whether the write may have happened.
    StoreFailed(Applied),
    /// There is no receipt.
    NoReceipt,
    /// The receipt is not this ticket's any more; this is what is there.
    NotYours(Option<Box<ReceiptShown>>),
    /// The outcome is not unknown, or the receipt belongs to another run; this is the receipt.
    NotUnknown(Box<ReceiptShown>),
    /// The run still has its lease.
    StillRunning,
    /// It is too early to say that it did not happen, and for how long.
    MayStillHappen(String),
    /// The outcome of one of its tries is unknown.
    OutcomeUnknown,
    /// It is running or waits, and so cannot be erased; why.
    NotErasable(String),
    /// The token is for the other kind of client.
    WrongToken(&'static str),
    /// The receipt is in another state than this is for; this is what is there.
    OtherState(Box<ReceiptShown>),
    /// A problem of routes that another crate adds.
    Other {
        /// Its name in the type.
        name: &'static str,
        /// The status of the answer.
        status: StatusCode,
        /// What it is, in a few words.
        title: &'static str,
        /// What it means here, and what to do.
        detail: String,
    },
}

impl Problem {
    /// A body with more bytes than this.
    pub fn too_large(bytes_max: usize) -> Self {
        Self::Wire(Wire::BodyTooLarge(bytes_max))
    }

    /// Its name in the type.
    pub fn name(&self) -> &'static str {
        self.facts().0
    }

    /// The name, the status, the title, and whether the same may be sent again as it is.
    fn facts(&self) -> (&'static str, StatusCode, &'static str, bool) {
        match self {
            Self::Wire(wire) => (wire.name(), wire.status(), "", false),
            Self::Invalid(_) => {
                ("invalid-request", StatusCode::BAD_REQUEST, "The request cannot be understood", false)
            }
            Self::NotJson => {
                ("not-json", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The request must be JSON", false)
            }
            Self::NoSuchPath => ("no-such-path", StatusCode::NOT_FOUND, "There is no such path", false),
            Self::NoSuchMethod => {
                ("no-such-method", StatusCode::METHOD_NOT_ALLOWED, "The method is not allowed", false)
            }
            Self::Unauthorized => {
                ("unauthorized", StatusCode::UNAUTHORIZED, "The admin token is needed", false)
            }
            Self::Foreign(_) => {
                ("foreign-page", StatusCode::FORBIDDEN, "This listener is for this machine only", false)
            }
            Self::StoreFailed(_) => (
                "store-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The store of receipts cannot be reached",
                true,
            ),
            Self::NoReceipt => ("no-receipt", StatusCode::NOT_FOUND, "There is no such receipt", false),
            Self::NotYours(_) => {
                ("not-yours", StatusCode::CONFLICT, "The receipt is not this ticket's any more", false)
            }
            Self::NotUnknown(_) => ("not-unknown", StatusCode::CONFLICT, "The outcome is not unknown", false),
            Self::StillRunning => {
                ("still-running", StatusCode::CONFLICT, "This run still has its lease", true)
            }
            Self::MayStillHappen(_) => {
                ("may-still-happen", StatusCode::CONFLICT, "What was sent may still take effect", true)
            }
            Self::OutcomeUnknown => {
                ("outcome-unknown", StatusCode::CONFLICT, "The outcome of one of its tries is unknown", false)
            }
            Self::NotErasable(_) => {
                ("not-erasable", StatusCode::CONFLICT, "The receipt cannot be erased now", false)
            }
            Self::WrongToken(_) => ("wrong-token", StatusCode::FORBIDDEN, "The token is not for this", false),
            Self::OtherState(_) => {
                ("other-state", StatusCode::CONFLICT, "The receipt is in another state", false)
            }
            Self::Other { name, status, title, .. } => (*name, *status, *title, false),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Wire(_) => String::new(),
            Self::Invalid(why) => format!("{why}."),
            Self::NotJson => "Send the body with Content-Type: application/json.".into(),
            Self::NoSuchPath => "The paths are in /openapi.json.".into(),
            Self::NoSuchMethod => "The methods of each path are in /openapi.json.".into(),
            Self::Unauthorized => "Send it as Authorization: Bearer TOKEN.".into(),
            Self::Foreign(why) => {
                format!("The request was refused because {why}. To let others in, set an admin token.")
            }
            Self::StoreFailed(Applied::No) => "Nothing was changed. Send the same again later.".into(),
            Self::StoreFailed(Applied::Maybe) => {
                "It may have been written all the same. Send the same again: with the same attempt, or the same ticket, that is safe.".into()
            }
            Self::NoReceipt => "No claim holds this key; the next claim runs.".into(),
            Self::NotYours(_) => {
                "Its lease ended, and another owner or an operator decided. Nothing was changed; do not have the effect again.".into()
            }
            Self::NotUnknown(_) => {
                "The outcome is not unknown, or the receipt belongs to another run than the fence names. Nothing was changed.".into()
            }
            Self::StillRunning => {
                "Only an unknown outcome can be settled. Try again when the lease has ended, or let its owner finish.".into()
            }
            Self::MayStillHappen(why) => format!("Nothing was changed: {why}."),
            Self::OutcomeUnknown => {
                "It may have taken effect. Find out, and settle it as done or as not done; the latter has it tried again.".into()
            }
            Self::NotErasable(why) => format!("Nothing was changed: {why}."),
            Self::WrongToken(whose) => format!("This is for {whose}, whose token is another one."),
            Self::Other { detail, .. } => detail.clone(),
            Self::OtherState(_) => "Nothing was changed. The receipt that is there is shown.".into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (name, status, title, retryable) = self.facts();
        if let Self::Wire(wire) = self {
            return wire.into_response(status).map(Body::from);
        }
        tracing::info!(problem = name, status = status.as_u16(), "refused by the admin listener");
        let mut body = json!({
            "type": format!("urn:onceward:problem:{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
            "retryable": retryable,
        });
        if let Self::NotYours(Some(receipt)) | Self::NotUnknown(receipt) | Self::OtherState(receipt) = &self {
            body["receipt"] = serde_json::to_value(receipt).expect("plain values are JSON");
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Self::Unauthorized = self {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if retryable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::Wire(match refusal {
            Refusal::KeyReused => Wire::KeyReused,
            Refusal::InProgress { retry_after } => Wire::InProgress { retry_after },
            Refusal::ResponseNotStored { note, .. } => {
                let original_status = std::str::from_utf8(&note).ok().and_then(|note| note.parse().ok());
                Wire::ResponseNotStored { original_status }
            }
            Refusal::KeyExpired => Wire::KeyExpired,
            Refusal::Dead { .. } => Wire::Dead,
            Refusal::Closed(_) => Wire::Closed,
            // A reason that this version does not know cannot be retried safely either.
            _ => Wire::OutcomeUnknown { retry_after: None },
        })
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::Invalid(error.to_string()),
            ErrorKind::Overloaded => Self::Wire(Wire::Overloaded { retry_after: SOON }),
            ErrorKind::Conflict => Self::StillRunning,
            _ => {
                tracing::error!(%error, "the store of receipts failed");
                Self::StoreFailed(error.applied())
            }
        }
    }
}
