//! The body of a response as it arrives from the service. Its connection returns to the pool after the last frame, if
//! nothing about the response speaks against it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward_http::BoxError;
use tokio::time::{Instant, Sleep};

use super::pool::PooledConnection;

/// A body that is read from the service.
pub struct ServiceBody {
    body: Incoming,
    limit: Option<IdleLimit>,
    connection: Option<PooledConnection>,
}

impl ServiceBody {
    /// `idle_max` is the longest time between two frames. The connection is closed if the body is dropped before its end.
    pub fn new(body: Incoming, idle_max: Option<Duration>, connection: PooledConnection) -> Self {
        let limit = idle_max.map(IdleLimit::new);
        Self { body, limit, connection: Some(connection) }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(limit) = &mut self.limit {
                    limit.restart();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.return_to_pool();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Some(limit) = &mut self.limit else { return Poll::Pending };
                ready!(limit.poll_too_slow(cx));
                Poll::Ready(Some(Err("the service is too slow".into())))
            }
        }
    }

    pub fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn return_to_pool(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.put_back();
        }
    }
}

impl Drop for ServiceBody {
    fn drop(&mut self) {
        // A reader that knows the length does not poll for the end.
        if self.body.is_end_stream() {
            self.return_to_pool();
        }
    }
}

/// The longest time between two frames.
pub struct IdleLimit {
    at_most: Duration,
    /// Created when the service first pauses: most never need it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleLimit {
    pub fn new(at_most: Duration) -> Self {
        Self { at_most, timer: None }
    }

    /// Begins again after a frame.
    pub fn restart(&mut self) {
        self.timer = None;
    }

    /// Ready once the time is over without a frame.
    pub fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at_most = self.at_most;
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + at_most)));
        timer.as_mut().poll(cx)
    }
}
