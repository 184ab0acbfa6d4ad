//! A response body that keeps its request counted as in progress until it was handed over or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::connection_watch::RequestInProgress;

/// A body with the request that it answers.
pub struct CountedBody<B> {
    body: B,
    _request: RequestInProgress,
}

impl<B> CountedBody<B> {
    pub fn new(body: B, request: RequestInProgress) -> Self {
        Self { body, _request: request }
    }
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
