//! A body on its way through the gateway: whole, or passed on as it comes, at a pace that keeps nobody
//! waiting forever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward_http::BoxError;
use tokio::time::{Instant, Sleep};

use super::pool::PooledConnection;

/// A client that sends fewer bytes than this in a second, once its grace is over, is cut off. Slow
/// phones are faster; only somebody who wants to hold a connection is not.
const BYTES_PER_SECOND_MIN: u64 = 256;

/// The body of a request or a response.
pub enum GatewayBody {
    /// All of it is here.
    Whole(Option<Bytes>),
    /// It comes over a connection.
    Stream(StreamedBody),
}

/// A body that is still coming.
pub struct StreamedBody {
    body: Incoming,
    pace: Option<SlowSenderLimit>,
    /// The connection to the upstream, if it comes from there. It goes back to its pool once all has been read;
    /// dropped before, it is closed.
    pooled: Option<PooledConnection>,
}

impl StreamedBody {
    pub fn new(body: Incoming, pace: Option<SlowSenderLimit>, pooled: Option<PooledConnection>) -> Self {
        Self { body, pace, pooled }
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

/// How slow a sender may be.
pub struct SlowSenderLimit {
    rule: LimitRule,
    /// Made when the sender first has nothing to give: most never need it.
    alarm: Option<Pin<Box<Sleep>>>,
}

enum LimitRule {
    /// A grace, then a least rate, counted from the start.
    Rate { started: Instant, grace: Duration, received: u64 },
    /// At most this long between two frames.
    Idle { at_most: Duration },
}

impl SlowSenderLimit {
    /// For clients: a grace period, and then a least rate.
    pub fn rate(grace: Duration) -> Self {
        Self { rule: LimitRule::Rate { started: Instant::now(), grace, received: 0 }, alarm: None }
    }

    /// For services: a longest silence.
    pub fn idle(at_most: Duration) -> Self {
        Self { rule: LimitRule::Idle { at_most }, alarm: None }
    }

    fn took(&mut self, bytes: usize) {
        if let LimitRule::Rate { received, .. } = &mut self.rule {
            *received += bytes as u64;
        }
        self.alarm = None;
    }

    /// Ready once the sender has been too slow.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_with(|| {
            let until = match self.rule {
                LimitRule::Rate { started, grace, received } => {
                    started + grace + Duration::from_millis(received * 1000 / BYTES_PER_SECOND_MIN)
                }
                LimitRule::Idle { at_most } => Instant::now() + at_most,
            };
            Box::pin(tokio::time::sleep_until(until))
        });
        alarm.as_mut().poll(cx)
    }
}

impl GatewayBody {
    /// How many bytes there are, if all of them are here.
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
                if let Some(pace) = &mut streamed.pace {
                    pace.took(frame.data_ref().map_or(0, Bytes::len));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                streamed.return_to_pool();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Some(pace) = &mut streamed.pace else { return Poll::Pending };
                ready!(pace.poll_late(cx));
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
