//! A response body whose beginning can be read ahead without consuming it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use onceward_http::BoxError;

/// The maximum length of a problem document; a longer one is not parsed.
const PEEK_BYTES_MAX: usize = 64 << 10;

/// The body of an answer through [`RetryLayer`](super::RetryLayer): the inner service's, whole.
#[derive(Debug)]
pub struct ReplyBody<B> {
    /// What was read ahead and not returned yet.
    read: Bytes,
    rest: Pin<Box<B>>,
}

impl<B> ReplyBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(body: B) -> Self {
        Self { read: Bytes::new(), rest: Box::pin(body) }
    }

    /// Reads the beginning, up to a limit, without consuming it.
    pub(crate) async fn peek(&mut self) -> Result<&[u8], BoxError> {
        let mut read = BytesMut::new();
        while read.len() < PEEK_BYTES_MAX
            && let Some(frame) = self.rest.frame().await
        {
            // Trailers of a problem have no meaning here.
            if let Ok(data) = frame.map_err(Into::into)?.into_data() {
                read.extend_from_slice(&data);
            }
        }
        self.read = read.freeze();
        Ok(&self.read)
    }
}

impl<B: Body<Data = Bytes>> Body for ReplyBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.read.is_empty() {
            return self.rest.as_mut().poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, read) = (self.rest.size_hint(), self.read.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + read);
        }
        hint.set_lower(rest.lower() + read);
        hint
    }
}
