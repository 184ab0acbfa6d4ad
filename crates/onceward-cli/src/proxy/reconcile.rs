//! Asks the service what became of an unknown outcome: `GET` of a path with the key in it. 200 is the answer
//! that the first request would have got, 404 says that nothing happened, 202 that it is still going on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use onceward_http::reconcile::{Doubt, Reconcile, Reconciled};
use onceward_http::{BoxError, Fut};

use super::forward::Upstream;
use super::payload::{Pace, Payload};

/// An answer that is larger is no outcome to store.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Reconciles by asking the upstream.
pub struct ByAsking {
    upstream: Arc<Upstream>,
    /// A path with `{key}` in it.
    template: String,
    patience: Duration,
}

impl ByAsking {
    pub fn new(upstream: Arc<Upstream>, template: String, patience: Duration) -> Self {
        Self { upstream, template, patience }
    }
}
