//! JSON request and response bodies, with limits on size and time.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::problem::Problem;

/// Largest request: the largest outcome that the engine keeps, as base64, plus the other members.
const BODY_BYTES_MAX: usize = 2 << 20;
/// The body of a request must arrive within this time.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// A value as JSON: what a request says, or what an answer says.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self.0).expect("plain values are JSON");
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let media = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = media.and_then(|media| media.split(';').next()).map(str::trim);
        if !essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
            return Err(Problem::NotJson);
        }
        let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX);
        let body = match timeout(BODY_WITHIN, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) if is_too_long(&error) => return Err(Problem::too_large(BODY_BYTES_MAX)),
            Ok(Err(_)) => return Err(Problem::Invalid("the request body broke off".into())),
            Err(_) => return Err(Problem::Invalid(format!("the request body took over {BODY_WITHIN:?}"))),
        };
        serde_json::from_slice(&body).map(Self).map_err(|error| Problem::Invalid(error.to_string()))
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    std::error::Error::source(error)
        .is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>)
}
