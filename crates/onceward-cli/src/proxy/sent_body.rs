//! The body of a response on its way to a client. A response that a client does not read, or reads too slowly, is given up
//! after a time, so that it holds neither its run nor the service.
//!
//! | response | given up when the client |
//! |---|---|
//! | over HTTP/2, where one can stay unread while the connection continues | does not take the next piece within `write_timeout` |
//! | of a guarded request, while its run lasts | has kept pieces waiting for longer than `write_timeout` and a second for every 32 KiB, in all |
//!
//! On HTTP/1.1 the connection's own deadline ends a client that does not read at all.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward_http::{BoxError, ResponseBody};
use tokio::time::{Instant, sleep_until};

use super::body::GatewayBody;
use crate::listener::RequestInProgress;

/// The slowest rate, over the whole response, at which a client may read while the key of its request is held. A response
/// of this kind is too large to be kept, so there is no other way to get it.
const GUARDED_BYTES_PER_SECOND_MIN: u64 = 32 << 10;

/// A response body that is being sent.
pub struct SentBody {
    source: Source,
    unread_max: Duration,
    multiplexed: bool,
    _request: RequestInProgress,
}

enum Source {
    Direct(ResponseBody<GatewayBody>),
    /// Watched by a task, which takes the body away if it stays unread.
    Watched(Arc<Mutex<WatchedSource>>),
}

struct WatchedSource {
    /// `None` once it was given up.
    body: Option<ResponseBody<GatewayBody>>,
    limits: Limits,
    /// When the last piece was handed over, if it has not been asked for the next one since.
    unread_since: Option<Instant>,
    /// How long pieces have waited before that, and the bytes of all pieces.
    waited: Duration,
    handed_over: u64,
}

#[derive(Clone, Copy)]
struct Limits {
    unread_max: Duration,
    /// Whether one piece may wait no longer than this.
    each: bool,
    /// Whether all together may wait no longer than this and the time for their bytes.
    all: bool,
}

impl SentBody {
    pub fn new(
        body: ResponseBody<GatewayBody>,
        unread_max: Duration,
        multiplexed: bool,
        request: RequestInProgress,
    ) -> Self {
        Self { source: Source::Direct(body), unread_max, multiplexed, _request: request }
    }

    /// Called with the first piece, if more are to come. Most responses have one piece and are never watched.
    fn watch(&mut self, first: usize) {
        let Source::Direct(body) = &mut self.source else { return };
        let limits = Limits { unread_max: self.unread_max, each: self.multiplexed, all: body.is_live() };
        if !limits.each && !limits.all {
            return;
        }
        let body = std::mem::replace(body, ResponseBody::whole(Bytes::new()));
        let watched = WatchedSource {
            body: Some(body),
            limits,
            unread_since: Some(Instant::now()),
            waited: Duration::ZERO,
            handed_over: first as u64,
        };
        let watched = Arc::new(Mutex::new(watched));
        tokio::spawn(give_up_unread(Arc::downgrade(&watched), limits.unread_max));
        self.source = Source::Watched(watched);
    }
}

impl WatchedSource {
    /// When it is given up unless the client takes the next piece.
    fn deadline(&self) -> Option<Instant> {
        let since = self.unread_since?;
        let Limits { unread_max, each, all } = self.limits;
        let each = each.then_some(unread_max);
        let for_bytes = Duration::from_millis(self.handed_over * 1000 / GUARDED_BYTES_PER_SECOND_MIN);
        let all = all.then(|| (unread_max + for_bytes).saturating_sub(self.waited));
        Some(since + each.into_iter().chain(all).min()?)
    }

    fn asked_for_more(&mut self) {
        if let Some(since) = self.unread_since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// Drops a body that its client has not read in time.
async fn give_up_unread(source: Weak<Mutex<WatchedSource>>, look_every: Duration) {
    let mut look_at = Instant::now() + look_every;
    loop {
        sleep_until(look_at).await;
        let Some(source) = source.upgrade() else { return };
        let mut source = lock(&source);
        let (now, deadline) = (Instant::now(), source.deadline());
        if deadline.is_some_and(|deadline| deadline <= now) {
            tracing::debug!("a client did not read a response in time; it is given up");
            source.body = None;
            return;
        }
        look_at = deadline.unwrap_or(now + look_every).min(now + look_every);
    }
}

fn lock(source: &Mutex<WatchedSource>) -> MutexGuard<'_, WatchedSource> {
    source.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of bytes of a polled piece; `None` if there is none.
fn piece(polled: &Poll<Option<Result<Frame<Bytes>, BoxError>>>) -> Option<usize> {
    match polled {
        Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Bytes::len)),
        _ => None,
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match &mut this.source {
            Source::Direct(body) => {
                let polled = Pin::new(&mut *body).poll_frame(cx);
                if let Some(first) = piece(&polled)
                    && !body.is_end_stream()
                {
                    this.watch(first);
                }
                polled
            }
            Source::Watched(source) => {
                let mut source = lock(source);
                source.asked_for_more();
                let Some(body) = &mut source.body else {
                    return Poll::Ready(Some(Err("the client did not read the response in time".into())));
                };
                let polled = Pin::new(body).poll_frame(cx);
                if let Some(bytes) = piece(&polled) {
                    source.unread_since = Some(Instant::now());
                    source.handed_over += bytes as u64;
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Direct(body) => body.is_end_stream(),
            Source::Watched(source) => lock(source).body.as_ref().is_some_and(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Direct(body) => body.size_hint(),
            Source::Watched(source) => {
                lock(source).body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
            }
        }
    }
}
