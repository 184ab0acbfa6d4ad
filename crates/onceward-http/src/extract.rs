//! The axum extractors for the lease of a request (feature `axum`).

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use onceward::Lease;

use crate::transact::ResponseLease;

/// The [`Lease`] of the run that a handler is called for, as an argument of the handler.
///
/// Without a run there is none: where keys are optional, take an `Option<RequestLease>`. A request that comes without
/// a lease to a handler that wants one is answered with 500 and the message of [`LeaseMissing`].
///
/// ```
/// # use axum::{Router, routing::post}; use onceward_http::{OncewardLayer, RequestLease, Route};
/// async fn charge(RequestLease(lease): RequestLease) -> String {
///     let key = lease.child("provider").expect("a short label");
///     format!("charged with {key} under fence {}", lease.fence())
/// }
/// # fn example(onceward: onceward::Onceward, secret: [u8; 32]) -> Router {
/// Router::new().route("/charges", post(charge)).layer(OncewardLayer::new(onceward, secret, Route::default()))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RequestLease(pub Lease);

impl Deref for RequestLease {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0
    }
}

/// Why a handler that wants a lease was not called: its request has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseMissing {
    /// The request has no lease at all.
    Lease,
    /// The request has no lease that commits its response.
    ResponseLease,
}

impl fmt::Display for LeaseMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => {
                "this handler wants the lease of its request, and there is none: put onceward_http::OncewardLayer \
                 around its route, or take an Option<RequestLease> if the layer lets requests pass without a key"
            }
            Self::ResponseLease => {
                "this handler wants to commit its response, and its request has no ResponseLease: put \
                 onceward_http::OncewardLayer around its route, with a Route that is built \
                 with_effects_in_transaction, or take an Option<ResponseLease> if the layer lets requests pass \
                 without a key"
            }
        })
    }
}

impl std::error::Error for LeaseMissing {}

impl IntoResponse for LeaseMissing {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for RequestLease {
    type Rejection = LeaseMissing;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LeaseMissing> {
        parts.extensions.get().cloned().map(Self).ok_or(LeaseMissing::Lease)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for RequestLease {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned().map(Self))
    }
}

impl<S: Sync> FromRequestParts<S> for ResponseLease {
    type Rejection = LeaseMissing;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LeaseMissing> {
        parts.extensions.get().cloned().ok_or(LeaseMissing::ResponseLease)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for ResponseLease {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}
