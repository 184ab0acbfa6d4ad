//! The body of a response on its way to a client. Over HTTP/2 a client can leave one response unread while the
//! connection goes on: such a response is given up after a time, so that it holds neither its run nor the service.

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

/// A response body that is being sent.
pub struct SentBody {
    source: Source,
    /// Only for responses over HTTP/2: how long one may stay unread. On HTTP/1.1 the connection's own deadline is enough.
    unread_max: Option<Duration>,
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
    /// When the last piece was handed over, if it has not been asked for the next one since.
    unread_since: Option<Instant>,
}

impl SentBody {
    pub fn new(
        body: ResponseBody<GatewayBody>,
        unread_max: Option<Duration>,
        request: RequestInProgress,
    ) -> Self {
        Self { source: Source::Direct(body), unread_max, _request: request }
    }

    /// Most responses end with their first piece and are never watched.
    fn watch(&mut self, unread_max: Duration) {
        let Source::Direct(body) = &mut self.source else { return };
        let body = std::mem::replace(body, ResponseBody::whole(Bytes::new()));
        let watched = WatchedSource { body: Some(body), unread_since: Some(Instant::now()) };
        let watched = Arc::new(Mutex::new(watched));
        tokio::spawn(give_up_unread(Arc::downgrade(&watched), unread_max));
        self.source = Source::Watched(watched);
    }
}

/// Drops a body that has not been asked for its next piece for `unread_max`.
async fn give_up_unread(source: Weak<Mutex<WatchedSource>>, unread_max: Duration) {
    let mut look_at = Instant::now() + unread_max;
    loop {
        sleep_until(look_at).await;
        let Some(source) = source.upgrade() else { return };
        let mut source = lock(&source);
        look_at = source.unread_since.unwrap_or_else(Instant::now) + unread_max;
        if look_at <= Instant::now() {
            tracing::debug!("a client left a response unread; it is given up");
            source.body = None;
            return;
        }
    }
}

fn lock(source: &Mutex<WatchedSource>) -> MutexGuard<'_, WatchedSource> {
    source.lock().unwrap_or_else(PoisonError::into_inner)
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
                let more = matches!(polled, Poll::Ready(Some(Ok(_)))) && !body.is_end_stream();
                if let (true, Some(unread_max)) = (more, this.unread_max) {
                    this.watch(unread_max);
                }
                polled
            }
            Source::Watched(source) => {
                let mut source = lock(source);
                let Some(body) = &mut source.body else {
                    return Poll::Ready(Some(Err("the client did not read the response".into())));
                };
                let polled = Pin::new(body).poll_frame(cx);
                source.unread_since = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
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
