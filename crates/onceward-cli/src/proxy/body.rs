//! The body of a request or response in the gateway: buffered, or streamed with a limit on how slow its sender may be.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward_http::BoxError;
use tokio::time::{Instant, Sleep};

use super::pool::PooledConnection;

/// The minimum rate of a client after its grace period; a slower client is disconnected. Slow phones are faster; only an
/// attacker that holds connections open is slower.
const BYTES_PER_SECOND_MIN: u64 = 256;

/// The body of a request or a response.
pub enum GatewayBody {
    /// It is buffered.
    Whole(Option<Bytes>),
    /// It is read from a connection.
    Stream(StreamedBody),
}

/// A body that is read from a connection.
pub struct StreamedBody {
    body: Incoming,
    limit: Option<SlowSenderLimit>,
    /// The connection to the upstream, for the body of a response. It returns to its pool after the last frame; dropped
    /// before, it is closed.
    pooled: Option<PooledConnection>,
}

impl StreamedBody {
    pub fn new(body: Incoming, limit: Option<SlowSenderLimit>, pooled: Option<PooledConnection>) -> Self {
        Self { body, limit, pooled }
    }

    fn return_to_pool(&mut self) {
        if let Some((connection, pool)) = self.pooled.take() {
            pool.put_back(connection);
        }
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        // A reader that knows the length does not poll for the end.
        if self.pooled.is_some() && self.body.is_end_stream() {
            self.return_to_pool();
        }
    }
}

/// The limit on how slow a sender may be.
pub struct SlowSenderLimit {
    rule: LimitRule,
    /// Created when the sender first pauses: most never need it.
    timer: Option<Pin<Box<Sleep>>>,
}

enum LimitRule {
    /// A grace period, then a minimum average rate since the start.
    Rate { started: Instant, grace: Duration, received: u64 },
    /// At most this long between two frames.
    Idle { at_most: Duration },
}

impl SlowSenderLimit {
    /// For clients: a grace period, then a minimum rate.
    pub fn rate(grace: Duration) -> Self {
        Self { rule: LimitRule::Rate { started: Instant::now(), grace, received: 0 }, timer: None }
    }

    /// For services: a maximum time between two frames.
    pub fn idle(at_most: Duration) -> Self {
        Self { rule: LimitRule::Idle { at_most }, timer: None }
    }

    fn received(&mut self, bytes: usize) {
        if let LimitRule::Rate { received, .. } = &mut self.rule {
            *received += bytes as u64;
        }
        self.timer = None;
    }

    /// Ready once the sender is too slow.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| {
            let until = match self.rule {
                LimitRule::Rate { started, grace, received } => {
                    started + grace + Duration::from_millis(received * 1000 / BYTES_PER_SECOND_MIN)
                }
                LimitRule::Idle { at_most } => Instant::now() + at_most,
            };
            Box::pin(tokio::time::sleep_until(until))
        });
        timer.as_mut().poll(cx)
    }
}

impl GatewayBody {
    /// The number of bytes, if the body is buffered.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len)),
            Self::Stream(_) => None,
        }
    }
}

impl From<Bytes> for GatewayBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let streamed = match self.get_mut() {
            Self::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(streamed) => streamed,
        };
        match Pin::new(&mut streamed.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(limit) = &mut streamed.limit {
                    limit.received(frame.data_ref().map_or(0, Bytes::len));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                streamed.return_to_pool();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Some(limit) = &mut streamed.limit else { return Poll::Pending };
                ready!(limit.poll_too_slow(cx));
                Poll::Ready(Some(Err("the sender is too slow".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(streamed) => streamed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(streamed) => streamed.body.size_hint(),
        }
    }
}
