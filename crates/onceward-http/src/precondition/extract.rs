//! Preconditions as an argument of axum handlers, tags and refusals as parts of their responses (feature `axum`).

use std::convert::Infallible;

use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::header::ETAG;
use http::request::Parts;

use super::{EntityTag, Preconditions};
use crate::action::ReportedEffect;
use crate::problem::Problem;

/// A field that cannot be read is answered with 400, before the handler is called. The key is free then.
impl<S: Sync> FromRequestParts<S> for Preconditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::from_headers(&parts.headers).map_err(|error| Problem::PreconditionMalformed(error.to_string()))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        // The corrected request may come under the same key. The table of a route knows the other problems by their status.
        let nothing_done = matches!(self, Self::PreconditionMalformed(_));
        let mut response = Problem::into_response(self, status).map(Body::from);
        if nothing_done {
            response.extensions_mut().insert(ReportedEffect::None);
        }
        response
    }
}

/// The `ETag` of a response.
impl IntoResponseParts for EntityTag {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.headers_mut().insert(ETAG, self.header_value());
        Ok(parts)
    }
}
