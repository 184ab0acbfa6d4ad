//! A pool of connections to the upstream. Unlike a general HTTP client, it never repeats a request that may have been
//! sent: it knows for each failure whether a byte can have left. The request of a guarded run is sent only while that run
//! certainly has its lease: a settlement counts from the end of the lease.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use onceward::Lease;
use onceward_http::UndelimitedBody;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use super::body::GatewayBody;
use super::client_body::BodyProgress;
use super::direct::{self, HEAD_BYTES_MAX};
use super::direct_pool::{DirectConnections, with_short_body};
use super::service_body::ServiceBody;
use super::tls::UpstreamTls;
use super::upstream_stream::{SocketView, UpstreamStream};

/// The timeout of connecting. Nothing has been sent at that point.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before common services close them (Node.js after five seconds, for one): a request
/// on a connection that the other side is closing has an unknown outcome.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(2);
/// More idle connections than this are closed.
pub(super) const IDLE_CONNECTIONS_MAX: usize = 1024;

/// A connection to the service that hyper drives.
pub(super) struct Connection {
    pub sender: SendRequest<GatewayBody>,
    pub socket: SocketView,
}

/// Connections to one upstream.
pub struct Pool {
    host: String,
    port: u16,
    tls: Option<UpstreamTls>,
    /// The one that was used last is at the back, and is taken first: the others reach their time limit, and the
    /// pool shrinks to what the load needs.
    idle: Mutex<VecDeque<(Connection, Instant)>>,
    /// The connections that hyper has no part in.
    pub(super) direct: DirectConnections,
}

/// Whether a connection to the upstream serves more than one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamReuse {
    /// After an answer whose end is beyond question.
    #[default]
    Safe,
    /// Each request has a connection of its own.
    Never,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The longest wait for the response to begin, once the whole request was sent.
    pub answer_timeout: Duration,
    /// The longest time between two frames of the response.
    pub idle_max: Option<Duration>,
    pub reuse: UpstreamReuse,
}

impl SendOptions {
    pub(super) fn no_answer(self) -> SendFailure {
        SendFailure::NoAnswer(format!("no answer within {:?}", self.answer_timeout))
    }
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
        Self { host, port, tls, idle: Mutex::default(), direct: DirectConnections::default() }
    }

    /// Sends a request, and waits for the response to begin. `lease` is that of the run whose request it is. `progress`
    /// is that of a body that is still arriving. A response whose body ends with its connection has
    /// [`UndelimitedBody`] among its extensions.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<GatewayBody>,
        options: SendOptions,
        lease: Option<&Lease>,
        progress: Option<Arc<BodyProgress>>,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        if self.tls.is_none() && !self.direct.leaves_to_hyper() {
            request = with_short_body(request).await?;
            if direct::is_for(&request) {
                return self.send_directly(&request, options, lease).await;
            }
        }
        Box::pin(self.send_by_hyper(request, options, lease, progress)).await
    }

    pub(super) async fn send_by_hyper(
        self: &Arc<Self>,
        mut request: Request<GatewayBody>,
        options: SendOptions,
        lease: Option<&Lease>,
        progress: Option<Arc<BodyProgress>>,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        let head_only = request.method() == Method::HEAD;
        loop {
            let idle = match options.reuse {
                UpstreamReuse::Safe => self.take_idle().await,
                UpstreamReuse::Never => None,
            };
            let reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                // Rare and large: kept out of the future that every request carries.
                None => {
                    Box::pin(self.connect()).await.map_err(|error| SendFailure::NotSent(error.to_string()))?
                }
            };
            check_lease(lease)?;
            let sending = connection.sender.try_send_request(request);
            let answer = match &progress {
                None => timeout(options.answer_timeout, sending).await.map_err(drop),
                Some(progress) => {
                    Box::pin(after_body(sending, progress, options.answer_timeout)).await.ok_or(())
                }
            };
            let mut error = match answer {
                Ok(Ok(response)) => return self.received(response, connection, head_only, options),
                Ok(Err(error)) => error,
                Err(()) => return Err(options.no_answer()),
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

    pub(super) fn received(
        self: &Arc<Self>,
        response: Response<hyper::body::Incoming>,
        connection: Connection,
        head_only: bool,
        options: SendOptions,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        let has_no_body = head_only
            || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || response.status().is_informational();
        let is_delimited = match transfer_coding(response.headers()) {
            Some(false) => return Err(SendFailure::NoAnswer("a transfer coding other than chunked".into())),
            Some(true) => true,
            None => has_no_body || response.headers().contains_key(CONTENT_LENGTH),
        };
        // Some services send a body with a response that has none. It would be read as the beginning of the next
        // response, which belongs to another request.
        let may_be_reused = options.reuse == UpstreamReuse::Safe && !has_no_body && is_delimited;
        let pool = may_be_reused.then(|| self.clone());
        let pooled = PooledConnection { connection, pool };
        let mut response =
            response.map(|body| GatewayBody::FromService(ServiceBody::new(body, options.idle_max, pooled)));
        if !is_delimited {
            response.extensions_mut().insert(UndelimitedBody);
        }
        Ok(response)
    }

    /// Takes back a connection whose answer has been read to its end.
    fn put_back(&self, connection: Connection) {
        if connection.sender.is_closed() {
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
            // It has read its last answer, so it is ready at once, or closed. What a service sends after an answer would
            // be taken for the answer to the next request: what hyper has read of it has closed the connection, and what
            // it has not is seen here.
            if since.elapsed() <= IDLE_MAX
                && connection.sender.ready().await.is_ok()
                && connection.socket.is_silent()
            {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let (stream, socket) = UpstreamStream::new(self.stream().await?);
        let sender = match &self.tls {
            None => handshake(stream).await?,
            Some(tls) => {
                let stream =
                    timeout(CONNECT_TIMEOUT, tls.connect(stream)).await.map_err(|_| too_slow())??;
                handshake(stream).await?
            }
        };
        Ok(Connection { sender, socket })
    }

    pub(super) async fn stream(&self) -> io::Result<TcpStream> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| too_slow())??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// The connection that a response comes over, and the pool that it returns to, if any.
pub struct PooledConnection {
    connection: Connection,
    pool: Option<Arc<Pool>>,
}

impl PooledConnection {
    /// Called after the last frame of the response; without a pool, the connection is closed.
    pub fn put_back(self) {
        if let Some(pool) = self.pool {
            pool.put_back(self.connection);
        }
    }
}

/// Waits for the answer to a request whose body is still arriving. The time for the answer begins when the body was sent;
/// before, it limits how long the service may take no more of it.
async fn after_body<T>(
    sending: impl Future<Output = T>,
    progress: &BodyProgress,
    answer_timeout: Duration,
) -> Option<T> {
    let mut sending = std::pin::pin!(sending);
    let mut look_at = tokio::time::Instant::now() + answer_timeout;
    loop {
        tokio::select! {
            answer = &mut sending => return Some(answer),
            () = sleep_until(look_at) => {}
        }
        let now = tokio::time::Instant::now();
        // A client that is waited for has a limit of its own.
        look_at = progress.service_awaited_since().unwrap_or(now) + answer_timeout;
        if look_at <= now {
            return None;
        }
    }
}

/// Checked when nothing is left to wait for: to connect takes time, and the process may have been paused.
pub(super) fn check_lease(lease: Option<&Lease>) -> Result<(), SendFailure> {
    if lease.is_some_and(|lease| !lease.is_held()) {
        let why = "the lease of the run was over before its request could be sent";
        return Err(SendFailure::NotSent(why.into()));
    }
    Ok(())
}

/// Returns whether the only transfer coding is `chunked`; `None` without a transfer coding.
pub fn transfer_coding(headers: &HeaderMap) -> Option<bool> {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let first = lines.next()?;
    Some(lines.next().is_none() && first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_TIMEOUT:?}"))
}

pub(super) async fn handshake<S>(stream: S) -> io::Result<SendRequest<GatewayBody>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (sender, driver) =
        builder.handshake::<_, GatewayBody>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Its errors also reach the task that waits for an answer.
    tokio::spawn(driver.with_upgrades());
    Ok(sender)
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[cfg(test)]
#[path = "pool_test.rs"]
mod tests;
