//! An HTTP/2 client that holds back the last bytes of many requests on one connection and sends them in one write.
//! Without TLS the server must accept HTTP/2 with prior knowledge.
//!
//! The connection writes through a [`CorkableStream`]. While its cork is in, frames gather; when it is pulled, they leave
//! as one piece, so that no request is ahead of another by more than its place in one packet.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Ping, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use super::message::{Answer, Meaning, Request, host};
use super::volley::HttpVersion;
use super::wire::{self, Wire};

/// Streams of one connection; servers commonly allow a hundred.
const STREAMS_MAX: usize = 100;
/// Bytes of bodies on one connection. Half the window that every server grants at first, so that no
/// byte waits for an update of it.
pub(super) const BODIES_BYTES_MAX: usize = 32 << 10;
/// The head of a frame.
const FRAME_BYTES: usize = 9;
/// The last frames are in the cork by then, or something is wrong.
const GATHER_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that share a connection, each sent but for its last byte.
#[derive(Debug)]
pub(super) struct HeldRequests {
    bottle: CorkableStream,
    answers: Vec<ResponseFuture>,
    connection: Arc<Driver>,
}

/// Keeps the connection going for as long as an answer is awaited.
#[derive(Debug)]
pub(super) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How many requests with bodies of this size one connection takes.
pub(super) fn streams_max(body_bytes: usize) -> usize {
    (BODIES_BYTES_MAX / body_bytes.max(1)).clamp(1, STREAMS_MAX)
}

/// Connects and sends all these requests, each but for its last byte, which gather in the cork.
pub(super) async fn hold(requests: &[&Request]) -> io::Result<HeldRequests> {
    let first = requests.first().expect("a connection is opened for some request");
    let bottle = CorkableStream::new(first.place.connect(HttpVersion::Http2).await?);
    let (mut sender, mut connection) = h2::client::handshake(bottle.clone()).await.map_err(broke)?;
    let mut ping = connection.ping_pong().expect("nobody took it");
    let connection = Arc::new(Driver(tokio::spawn(connection).abort_handle()));
    // The answer to a ping comes after the server's settings, and tells that all before it has left.
    ping.ping(Ping::opaque()).await.map_err(broke)?;
    let (mut answers, mut lasts) = (Vec::new(), Vec::new());
    for request in requests {
        sender = sender.ready().await.map_err(broke)?;
        let (answer, mut body) = sender.send_request(head(request)?, false).map_err(broke)?;
        let most = request.body.len().saturating_sub(1);
        if most > 0 {
            body.send_data(request.body.slice(..most), false).map_err(broke)?;
        }
        answers.push(answer);
        lasts.push((body, request.body.slice(most..)));
    }
    ping.ping(Ping::opaque()).await.map_err(broke)?;
    gather(&bottle, lasts).await?;
    Ok(HeldRequests { bottle, answers, connection })
}

/// Puts the cork in and waits until the last frame of every request is behind it.
async fn gather(bottle: &CorkableStream, lasts: Vec<(SendStream<Bytes>, Bytes)>) -> io::Result<()> {
    let expected: usize = lasts.iter().map(|(_, last)| FRAME_BYTES + last.len()).sum();
    bottle.lock().cork = Some(Cork::default());
    for (mut body, last) in lasts {
        body.send_data(last, true).map_err(broke)?;
    }
    let gathered = async {
        while bottle.lock().cork.as_ref().is_some_and(|cork| cork.frames_bytes < expected) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    };
    tokio::time::timeout(GATHER_TIMEOUT, gathered)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the server's window did not open"))
}

impl HeldRequests {
    /// Sends all the last bytes in one write. Says when.
    pub(super) fn release(&self) -> io::Result<Instant> {
        let mut inside = self.bottle.lock();
        let cork = inside.cork.take().unwrap_or_default();
        wire::release(&*inside.wire, &cork.sealed)
    }

    /// The answers to come, in the order of the requests. Dropping the last of them hangs up.
    pub(super) fn answers(self) -> impl Iterator<Item = (Arc<Driver>, ResponseFuture)> {
        let connection = self.connection;
        self.answers.into_iter().map(move |answer| (connection.clone(), answer))
    }
}

/// Reads one answer.
pub(super) async fn answer((_connection, answer): (Arc<Driver>, ResponseFuture)) -> io::Result<Answer> {
    let (head, mut stream) = answer.await.map_err(broke)?.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(broke)?;
        body.extend_from_slice(&piece);
        stream.flow_control().release_capacity(piece.len()).map_err(broke)?;
    }
    let fields = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
    });
    Ok(Answer {
        status: head.status.as_u16(),
        fields: fields.collect(),
        body: body.into(),
        meaning: Meaning::Usual,
    })
}

fn head(request: &Request) -> io::Result<http::Request<()>> {
    let place = &request.place;
    let uri = format!("{}://{}{}", place.scheme(), host(request), place.target());
    let mut head = http::Request::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in request.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        head = head.header(name, &value[..]);
    }
    head.header("content-length", request.body.len())
        .body(())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn broke(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().expect("it is one") } else { io::Error::other(error) }
}

/// The connection's way to the socket.
#[derive(Clone, Debug)]
struct CorkableStream(Arc<Mutex<Inside>>);

#[derive(Debug)]
struct Inside {
    wire: Box<dyn Wire>,
    /// While it is there, frames gather behind it.
    cork: Option<Cork>,
}

/// What gathered.
#[derive(Debug, Default)]
struct Cork {
    /// As it will leave.
    sealed: Vec<u8>,
    /// How much that is before it is sealed.
    frames_bytes: usize,
}

impl CorkableStream {
    fn new(wire: Box<dyn Wire>) -> Self {
        Self(Arc::new(Mutex::new(Inside { wire, cork: None })))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().expect("nobody panics with the bottle in hand")
    }
}

impl AsyncRead for CorkableStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().wire).poll_read(cx, buf)
    }
}

impl AsyncWrite for CorkableStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let inside = &mut *self.lock();
        let Some(cork) = &mut inside.cork else { return Pin::new(&mut inside.wire).poll_write(cx, bytes) };
        cork.sealed.extend(inside.wire.seal(bytes)?);
        cork.frames_bytes += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inside = &mut *self.lock();
        match inside.cork {
            Some(_) => Poll::Ready(Ok(())),
            None => Pin::new(&mut inside.wire).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
