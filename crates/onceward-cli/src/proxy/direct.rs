//! A connection to the upstream that the task of a request drives itself: the request leaves in one write, and the
//! response is parsed where it is awaited. There is no task in between, and it is known whether a byte was sent. Only for
//! requests that are whole and for responses with a length; any other response continues in hyper (`handed_over.rs`).

use std::io;
use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::body::GatewayBody;
use super::response_head::{self, PlainHead, ResponseHead};

/// The maximum size of the head of a response.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// A larger body is copied and written by hyper, which reads while it writes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Space for one read. Most responses fit.
const READ_BYTES: usize = 4 << 10;

/// A connection that has no request in progress.
pub struct DirectConnection {
    stream: TcpStream,
    input: BytesMut,
    output: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug)]
pub enum DirectFailure {
    /// No byte of the request was sent.
    NotSent(io::Error),
    /// It may have been sent.
    NoAnswer(String),
}

/// The response.
pub enum DirectAnswer {
    /// A response without its body, and the connection that the body is read from.
    Plain(PlainHead, DirectConnection),
    /// A response that hyper has to read.
    Unusual(TcpStream, Bytes),
}

/// Returns whether a request can be sent in one piece.
pub fn is_for(request: &Request<GatewayBody>) -> bool {
    let is_whole = request.body().length().is_some_and(|bytes| bytes <= BODY_BYTES_MAX);
    // `OPTIONS *` and `CONNECT` have a target of another form, and `HEAD` has a length without a body.
    is_whole
        && !matches!(*request.method(), Method::HEAD | Method::CONNECT)
        && request.uri().path().starts_with('/')
        && !request.headers().contains_key(UPGRADE)
        && !request.headers().contains_key(TRANSFER_ENCODING)
}

impl DirectConnection {
    /// On a connection that was just made.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, input: BytesMut::new(), output: Vec::new() }
    }

    /// Returns whether the other side has neither closed it nor sent anything since its last response. This asks the
    /// kernel, because a request on a connection that is being closed has an unknown outcome.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = SockRef::from(&self.stream).peek(&mut byte);
        self.input.is_empty() && peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request and reads the head of its response. The connection is closed if this future is dropped.
    pub async fn send(mut self, request: &Request<GatewayBody>) -> Result<DirectAnswer, DirectFailure> {
        self.encode(request);
        let mut sent = self.stream.write(&self.output).await.map_err(DirectFailure::NotSent)?;
        loop {
            match response_head::parse(&mut self.input) {
                ResponseHead::Plain(head) => {
                    // A service that answers before it has read the request does not want the rest.
                    let keeps_connection = head.keeps_connection && sent == self.output.len();
                    return Ok(DirectAnswer::Plain(PlainHead { keeps_connection, ..head }, self));
                }
                ResponseHead::Unusual if sent < self.output.len() => {
                    return Err(DirectFailure::NoAnswer(
                        "a malformed response before the request was read".into(),
                    ));
                }
                ResponseHead::Malformed => {
                    return Err(DirectFailure::NoAnswer("a malformed field in the response".into()));
                }
                ResponseHead::Unusual => return Ok(DirectAnswer::Unusual(self.stream, self.input.freeze())),
                ResponseHead::Partial if self.input.len() > HEAD_BYTES_MAX => {
                    return Err(DirectFailure::NoAnswer("the head of the response is too large".into()));
                }
                ResponseHead::Partial => {}
            }
            if sent < self.output.len() {
                sent = self.write_more(sent).await?;
            } else {
                self.read_more().await?;
            }
        }
    }

    /// Writes on, or reads what comes meanwhile.
    async fn write_more(&mut self, sent: usize) -> Result<usize, DirectFailure> {
        self.make_space();
        let (mut reader, mut writer) = self.stream.split();
        tokio::select! {
            biased;
            written = writer.write(&self.output[sent..]) => match written {
                Ok(bytes) => return Ok(sent + bytes),
                // The service has had enough. It may have answered before.
                Err(_) => read_some(&mut reader, &mut self.input).await?,
            },
            read = read_some(&mut reader, &mut self.input) => read?,
        }
        Ok(sent)
    }

    async fn read_more(&mut self) -> Result<(), DirectFailure> {
        self.make_space();
        read_some(&mut self.stream, &mut self.input).await
    }

    fn make_space(&mut self) {
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(READ_BYTES);
        }
    }

    /// Returns whether everything that has arrived was taken.
    pub fn is_at_end(&self) -> bool {
        self.input.is_empty()
    }

    /// Takes the bytes of a body that have arrived, at most `bytes_max`.
    pub fn take_arrived(&mut self, bytes_max: u64) -> Bytes {
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.input.len());
        self.input.split_to(bytes).freeze()
    }

    /// Reads more bytes of a body.
    pub fn poll_more(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<usize>> {
        self.input.reserve(READ_BYTES);
        let reading = std::pin::pin!(self.stream.read_buf(&mut self.input));
        reading.poll(cx)
    }

    fn encode(&mut self, request: &Request<GatewayBody>) {
        let out = &mut self.output;
        out.clear();
        out.extend_from_slice(request.method().as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(
            request.uri().path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
        );
        out.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in request.headers() {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let GatewayBody::Whole(Some(body)) = request.body() else {
            out.extend_from_slice(b"\r\n");
            return;
        };
        if !request.headers().contains_key(CONTENT_LENGTH) {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}

async fn read_some(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    input: &mut BytesMut,
) -> Result<(), DirectFailure> {
    match stream.read_buf(input).await {
        Ok(0) => Err(DirectFailure::NoAnswer("connection closed before message completed".into())),
        Ok(_) => Ok(()),
        Err(error) => Err(DirectFailure::NoAnswer(error.to_string())),
    }
}
