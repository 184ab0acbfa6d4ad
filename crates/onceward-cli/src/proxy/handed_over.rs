//! A connection whose request was sent, and whose response was begun to be read, as hyper can continue with it: hyper
//! wants to send a request first, so it is given one that goes nowhere.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::upstream_stream::UpstreamStream;

/// The stream for hyper.
pub struct HandedOver {
    stream: UpstreamStream,
    /// Was read already.
    prefix: Bytes,
    /// hyper's request has not been swallowed yet. A response before a request would be an error to hyper, so nothing is
    /// read until then.
    awaits_request: bool,
    reader: Option<Waker>,
}

impl HandedOver {
    /// `prefix` are the bytes of the response that were read from the stream.
    pub fn new(stream: UpstreamStream, prefix: Bytes) -> Self {
        Self { stream, prefix, awaits_request: true, reader: None }
    }
}

impl AsyncRead for HandedOver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.awaits_request {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.prefix.has_remaining() {
            let bytes = self.prefix.len().min(buffer.remaining());
            buffer.put_slice(&self.prefix.split_to(bytes));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for HandedOver {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.awaits_request {
            // The whole head in one piece: the writes are not vectored, and hyper's buffer is larger.
            self.awaits_request = false;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
