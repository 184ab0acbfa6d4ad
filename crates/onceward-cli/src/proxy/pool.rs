//! A pool of connections to the upstream. Unlike a general HTTP client, it never repeats a request that may have been
//! sent: it knows for each failure whether a byte can have left.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body::{GatewayBody, SlowSenderLimit, StreamedBody};
use super::tls::UpstreamTls;

/// The timeout of connecting. Nothing has been sent at that point.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before common services close them (Node.js after five seconds, for one): a request
/// on a connection that the other side is closing has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// More idle connections than this are closed.
const IDLE_CONNECTIONS_MAX: usize = 1024;
/// The maximum size of the head of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;

type Connection = SendRequest<GatewayBody>;

/// Connections to one upstream.
pub struct Pool {
    host: String,
    port: u16,
    tls: Option<UpstreamTls>,
    /// The one that was used last is at the back, and is taken first: the others reach their time limit, and the
    /// pool shrinks to what the load needs.
    idle: Mutex<VecDeque<(Connection, Instant)>>,
}

/// Why there is no response.
#[derive(Debug)]
pub enum SendFailure {
    /// No byte of the request was sent.
    NotSent(String),
    /// It may have been sent.
    NoAnswer(String),
}

impl Pool {
    pub fn new(host: String, port: u16, tls: Option<UpstreamTls>) -> Self {
        Self { host, port, tls, idle: Mutex::default() }
    }

    /// Sends a request and waits at most `answer_timeout` for the response to begin; `limit` says how slow its body
    /// may be.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<GatewayBody>,
        answer_timeout: Duration,
        limit: Option<SlowSenderLimit>,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        loop {
            let idle = self.take_idle().await;
            let reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                // Rare and large: kept out of the future that every request carries.
                None => {
                    Box::pin(self.connect()).await.map_err(|error| SendFailure::NotSent(error.to_string()))?
                }
            };
            let answer = timeout(answer_timeout, connection.try_send_request(request));
            let mut error = match answer.await {
                Ok(Ok(response)) => {
                    let pooled = (connection, self.clone());
                    return Ok(response
                        .map(|body| GatewayBody::Stream(StreamedBody::new(body, limit, Some(pooled)))));
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(SendFailure::NoAnswer(format!("no answer within {answer_timeout:?}"))),
            };
            // hyper hands a request back only if its connection never started to send it: the other side had closed
            // it while it was idle. Every other failure counts as "it may have left".
            match error.take_message() {
                Some(unsent) if reused => request = unsent,
                Some(_) => return Err(SendFailure::NotSent(chain(error.error()))),
                None => return Err(SendFailure::NoAnswer(chain(error.error()))),
            }
        }
    }

    /// Takes back a connection whose answer has been read to its end.
    pub fn put_back(&self, connection: Connection) {
        if connection.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.len() >= IDLE_CONNECTIONS_MAX
            || idle.front().is_some_and(|(_, since)| now.duration_since(*since) > IDLE_MAX)
        {
            idle.pop_front();
        }
        idle.push_back((connection, now));
    }

    /// Where the connections go.
    pub fn address(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let (mut connection, since) = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                idle.pop_back()?
            };
            // It has read its last answer, so it is ready at once, or closed.
            if since.elapsed() <= IDLE_MAX && connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let stream = self.stream().await?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let stream =
                    timeout(CONNECT_TIMEOUT, tls.connect(stream)).await.map_err(|_| too_slow())??;
                handshake(stream).await
            }
        }
    }

    async fn stream(&self) -> io::Result<TcpStream> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| too_slow())??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_TIMEOUT:?}"))
}

async fn handshake<S>(stream: S) -> io::Result<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (connection, driver) =
        builder.handshake::<_, GatewayBody>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Its errors also reach the task that waits for an answer.
    tokio::spawn(driver.with_upgrades());
    Ok(connection)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// The connection that a body comes over, and the pool that it goes back to.
pub type PooledConnection = (Connection, Arc<Pool>);
