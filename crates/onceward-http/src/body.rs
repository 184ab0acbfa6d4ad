//! The response body: the inner service's own, a whole one from a receipt, or one that is passed on
//! while it comes and whose end waits for the receipt.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::mpsc;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project_lite::pin_project! {
    /// The body of a response that went through the layer.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum Kind<B> {
        /// Untouched.
        Inner {
            #[pin]
            body: B,
        },
        /// From a receipt, or a refusal.
        Whole {
            #[pin]
            body: Full<Bytes>,
        },
        /// Too large to be kept: passed on as it comes.
        Live {
            frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body } }
    }

    /// A body of our own making.
    pub fn whole(bytes: Bytes) -> Self {
        Self { kind: Kind::Whole { body: Full::new(bytes) } }
    }

    /// A body whose frames come from elsewhere; it ends when their sender is dropped.
    pub(crate) fn live(frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>) -> Self {
        Self { kind: Kind::Live { frames } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            Projected::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            Projected::Whole { body } => {
                Poll::Ready(ready!(body.poll_frame(cx)).map(|frame| frame.map_err(|never| match never {})))
            }
            Projected::Live { frames } => frames.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Whole { body } => body.is_end_stream(),
            Kind::Live { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Whole { body } => body.size_hint(),
            Kind::Live { .. } => SizeHint::default(),
        }
    }
}
