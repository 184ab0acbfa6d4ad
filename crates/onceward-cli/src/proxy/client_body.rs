//! The body of a request as it arrives from a client: the limit on how slow the client may be, and what the rest of the
//! gateway has to know about its progress.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward_http::BoxError;
use tokio::time::{Instant, Sleep};

use super::unread_body;

/// The minimum rate of a client after its grace period; a slower client is disconnected. Slow phones are faster; only an
/// attacker that holds connections open is slower.
const BYTES_PER_SECOND_MIN: u64 = 256;

/// A body that is read from a client.
pub struct ClientBody {
    /// Taken when this is dropped.
    body: Option<Incoming>,
    version: Version,
    limit: SlowSenderLimit,
    /// `None` for a request without a body.
    progress: Option<Arc<BodyProgress>>,
}

/// How far a body has come. Shared by the body, the task that forwards it and the one that answers.
#[derive(Debug)]
pub struct BodyProgress {
    began: Instant,
    fault: AtomicU8,
    /// Milliseconds after `began` at which the last piece was taken.
    taken_at: AtomicU64,
    awaits_client: AtomicBool,
}

/// What a client did wrong while it sent a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// It broke off, or is malformed.
    Broken = 1,
    /// It came too slowly.
    TooSlow = 2,
}

impl ClientBody {
    /// A body whose client may pause for `grace`, and must send at a minimum rate in the long run.
    pub fn new(body: Incoming, version: Version, grace: Duration) -> Self {
        let progress = (!body.is_end_stream()).then(|| Arc::new(BodyProgress::new()));
        Self { body: Some(body), version, limit: SlowSenderLimit::new(grace), progress }
    }

    /// Its progress, unless the request has no body.
    pub fn progress(&self) -> Option<Arc<BodyProgress>> {
        self.progress.clone()
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.body.as_mut().expect("it is taken by the drop only");
        let polled = Pin::new(body).poll_frame(cx);
        let Some(progress) = &self.progress else { return polled.map_err(Into::into) };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.limit.received(frame.data_ref().map_or(0, Bytes::len));
                progress.taken();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                progress.failed(BodyFault::Broken);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                progress.taken();
                Poll::Ready(None)
            }
            Poll::Pending if self.limit.poll_too_slow(cx).is_ready() => {
                progress.failed(BodyFault::TooSlow);
                Poll::Ready(Some(Err("the client is too slow".into())))
            }
            Poll::Pending => {
                progress.awaits_client.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }

    pub fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        let is_faulty = self.progress.as_ref().is_some_and(|progress| progress.fault().is_some());
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream())
            && self.version == Version::HTTP_2
            && !is_faulty
        {
            unread_body::drain(body);
        }
    }
}

impl BodyProgress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            fault: AtomicU8::new(0),
            taken_at: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
        }
    }

    /// What the client did wrong, if anything.
    pub fn fault(&self) -> Option<BodyFault> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(BodyFault::Broken),
            _ => Some(BodyFault::TooSlow),
        }
    }

    /// Since when the service has kept the body waiting; `None` while the client is the one that is waited for.
    pub fn service_awaited_since(&self) -> Option<Instant> {
        let taken_at = Duration::from_millis(self.taken_at.load(Ordering::Relaxed));
        (!self.awaits_client.load(Ordering::Relaxed)).then_some(self.began + taken_at)
    }

    fn taken(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.taken_at.store(now, Ordering::Relaxed);
        self.awaits_client.store(false, Ordering::Relaxed);
    }

    fn failed(&self, fault: BodyFault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }
}

impl BodyFault {
    /// How the client is told.
    pub fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Broken => (StatusCode::BAD_REQUEST, "the body of the request broke off, or is malformed"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body of the request arrived too slowly"),
        }
    }
}

/// The limit on how slow a client may be: the time that it may pause is at most the grace period, and is earned back
/// with every byte. What was sent early does not buy a long silence.
struct SlowSenderLimit {
    grace: Duration,
    /// When the client is too slow, unless more arrives.
    deadline: Instant,
    /// Created when the client first pauses: most never need it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl SlowSenderLimit {
    fn new(grace: Duration) -> Self {
        Self { grace, deadline: Instant::now() + grace, timer: None }
    }

    fn received(&mut self, bytes: usize) {
        let earned = Duration::from_millis(bytes as u64 * 1000 / BYTES_PER_SECOND_MIN);
        self.deadline = (self.deadline + earned).min(Instant::now() + self.grace);
        self.timer = None;
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline))).as_mut().poll(cx)
    }
}

#[cfg(test)]
#[path = "client_body_test.rs"]
mod tests;
