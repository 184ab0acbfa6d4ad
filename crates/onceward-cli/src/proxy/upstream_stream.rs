//! A connection to the service that can be looked at from outside its HTTP connection: whether the service has sent something
//! that nobody has read.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The stream that an HTTP connection reads and writes. Only the look of a [`SocketView`] ever contends for the lock.
pub struct UpstreamStream(Arc<Mutex<TcpStream>>);

/// Looks at the socket of an [`UpstreamStream`]; does not keep it open.
pub struct SocketView(Weak<Mutex<TcpStream>>);

impl UpstreamStream {
    pub fn new(stream: TcpStream) -> (Self, SocketView) {
        let stream = Arc::new(Mutex::new(stream));
        let view = SocketView(Arc::downgrade(&stream));
        (Self(stream), view)
    }

    fn lock(&self) -> MutexGuard<'_, TcpStream> {
        lock(&self.0)
    }
}

impl SocketView {
    /// Returns whether the connection is open and nothing has arrived, not even its end. Asks the operating system:
    /// what the reactor knows can be a moment old, and in that moment another request would take these bytes for its
    /// answer.
    pub fn is_silent(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return false };
        let mut byte = [MaybeUninit::uninit()];
        let peeked = SockRef::from(&*lock(&stream)).peek(&mut byte);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn lock(stream: &Mutex<TcpStream>) -> MutexGuard<'_, TcpStream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }
}
