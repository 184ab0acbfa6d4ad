//! The response body of the layer: the inner service's own, a complete one from a receipt, or a live one that is sent
//! while it arrives and whose end waits for the receipt.

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
        kind: BodyKind<B>,
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum BodyKind<B> {
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
        /// Too large to be kept: sent while it arrives.
        Live {
            pieces: mpsc::Receiver<Piece>,
            ended: bool,
        },
    }
}

/// One piece of a live body.
pub(crate) enum Piece {
    Data(Bytes),
    /// It is whole, and its receipt is written.
    End,
    /// It broke off.
    Broken(BoxError),
}

/// Pieces of a live response on their way: enough to keep both sides busy, few enough to be bounded.
const LIVE_PIECES: usize = 8;

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
    }

    /// A complete body.
    pub fn whole(bytes: Bytes) -> Self {
        Self { kind: BodyKind::Whole { body: Full::new(bytes) } }
    }

    /// Returns whether this is a guarded response on its way: its run continues, and its key is held, until it was read
    /// or dropped. A server that bounds how long a client may take for it drops it then; the receipt is written all the
    /// same.
    pub fn is_live(&self) -> bool {
        matches!(self.kind, BodyKind::Live { ended: false, .. })
    }

    /// A body whose pieces come through a channel. If the sender is dropped without a [`Piece::End`], the body fails: a
    /// part must never look complete.
    pub(crate) fn live() -> (mpsc::Sender<Piece>, Self) {
        let (sender, pieces) = mpsc::channel(LIVE_PIECES);
        (sender, Self { kind: BodyKind::Live { pieces, ended: false } })
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
            Projected::Live { ended: true, .. } => Poll::Ready(None),
            Projected::Live { pieces, ended } => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
                Some(Piece::End) => {
                    *ended = true;
                    None
                }
                Some(Piece::Broken(error)) => Some(Err(error)),
                None => Some(Err("the response broke off".into())),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Whole { body } => body.is_end_stream(),
            BodyKind::Live { ended, .. } => *ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            BodyKind::Whole { body } => body.size_hint(),
            BodyKind::Live { .. } => SizeHint::default(),
        }
    }
}
