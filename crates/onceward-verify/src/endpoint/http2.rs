//! HTTP/2 with prior knowledge: many requests on one connection, and all their last bytes in one write.
//!
//! The connection writes through a [`Cork`]. While it is in, frames gather; when it is pulled, they leave
//! as one piece, so that no request is ahead of another by more than its place in one packet.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Ping, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::message::{Answer, Request};

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
pub(super) struct Held {
    cork: Arc<Mutex<Cork>>,
    stream: Arc<TcpStream>,
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
pub(super) async fn hold(requests: &[&Request]) -> io::Result<Held> {
    let first = requests.first().expect("a connection is opened for some request");
    let stream = Arc::new(first.place.connect().await?);
    let cork = Arc::new(Mutex::new(Cork { is_in: false, bytes: Vec::new() }));
    let corked = Corked { stream: stream.clone(), cork: cork.clone() };
    let (mut sender, mut connection) = h2::client::handshake(corked).await.map_err(broke)?;
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
    gather(&cork, lasts).await?;
    Ok(Held { cork, stream, answers, connection })
}

/// Puts the cork in and waits until the last frame of every request is behind it.
async fn gather(cork: &Mutex<Cork>, lasts: Vec<(SendStream<Bytes>, Bytes)>) -> io::Result<()> {
    let expected: usize = lasts.iter().map(|(_, last)| FRAME_BYTES + last.len()).sum();
    lock(cork).is_in = true;
    for (mut body, last) in lasts {
        body.send_data(last, true).map_err(broke)?;
    }
    let gathered = async {
        while lock(cork).bytes.len() < expected {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    };
    tokio::time::timeout(GATHER_TIMEOUT, gathered)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the server's window did not open"))
}

impl Held {
    /// Sends all the last bytes in one write. Says when.
    pub(super) fn release(&self) -> io::Result<Instant> {
        let mut cork = lock(&self.cork);
        let at = Instant::now();
        let sent = self.stream.try_write(&cork.bytes)?;
        if sent < cork.bytes.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the last bytes did not leave in one piece",
            ));
        }
        cork.bytes.clear();
        cork.is_in = false;
        Ok(at)
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
    Ok(Answer { status: head.status.as_u16(), fields: fields.collect(), body: body.into() })
}

fn head(request: &Request) -> io::Result<http::Request<()>> {
    let uri = format!("http://{}{}", request.place.authority(), request.place.target());
    let mut head = http::Request::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in &request.fields {
        head = head.header(name, &value[..]);
    }
    head.header("content-length", request.body.len())
        .body(())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn broke(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().expect("it is one") } else { io::Error::other(error) }
}

fn lock(cork: &Mutex<Cork>) -> std::sync::MutexGuard<'_, Cork> {
    cork.lock().expect("nobody panics with the cork in hand")
}

/// Whether frames gather, and those that did.
#[derive(Debug)]
struct Cork {
    is_in: bool,
    bytes: Vec<u8>,
}

/// The connection's way to the socket.
#[derive(Debug)]
struct Corked {
    stream: Arc<TcpStream>,
    cork: Arc<Mutex<Cork>>,
}

impl AsyncRead for Corked {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Ok(bytes) => {
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Corked {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut cork = lock(&self.cork);
            if cork.is_in {
                cork.bytes.extend_from_slice(bytes);
                return Poll::Ready(Ok(bytes.len()));
            }
            drop(cork);
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
