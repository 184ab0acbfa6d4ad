//! Connections to etcd, and whether a byte of a call can have been sent.
//!
//! No call is sent twice on a guess. One that was handed back untouched, because its connection had ended, goes to the
//! next server; any other failure is told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::Address;
use crate::tls::{is_local, warn_unencrypted};

/// How long opening a connection may take. Short: there are other servers.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Connections that are kept for later calls.
const IDLE_MAX: usize = 16;
/// The largest answer: a page of receipts.
const ANSWER_BYTES_MAX: usize = 512 << 20;

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Body = Full<Bytes>;

pub(super) struct Http {
    servers: Vec<Server>,
    /// The server to ask first: the last that answered.
    current: AtomicUsize,
    call_timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
    idle: Mutex<Vec<(usize, SendRequest<Body>)>>,
}

struct Server {
    host: String,
    port: u16,
    /// As in the `Host` field, and in errors.
    name: String,
}

/// A call: what is sent.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) body: Bytes,
    pub(super) token: Option<Arc<str>>,
}

/// Why there is no answer.
pub(super) struct NoAnswer {
    pub(super) server: String,
    /// Nothing of the call can have arrived.
    pub(super) unsent: bool,
    pub(super) cause: Fault,
}

impl Http {
    pub(super) fn new(address: &Address, call_timeout: Duration) -> onceward::Result<Self> {
        let servers = address.hosts.iter().map(|(host, port)| {
            let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            Server { host: host.clone(), port: *port, name: format!("{shown}:{port}") }
        });
        Ok(Self {
            servers: servers.collect(),
            current: AtomicUsize::new(0),
            call_timeout,
            #[cfg(feature = "tls")]
            tls: match &address.tls {
                None => None,
                Some(tls) => Some(tls.client_config(crate::tls::SslMode::VerifyFull)?.into()),
            },
            idle: Mutex::default(),
        })
    }

    /// Says which servers are reached without TLS.
    pub(super) fn warn_unencrypted(&self, address: &Address) {
        if address.tls.is_none() {
            for server in self.servers.iter().filter(|server| !is_local(&server.host)) {
                warn_unencrypted(&format!("etcd at {}", server.name));
            }
        }
    }

    /// How errors name the server that is asked at the moment.
    pub(super) fn name(&self) -> String {
        format!("etcd at {}", self.servers[self.at()].name)
    }

    /// Sends a call, and returns the whole answer.
    pub(super) async fn call(&self, call: &Call) -> Result<Response<Bytes>, NoAnswer> {
        let answered = async {
            let (at, connection, answer) = self.send(call).await?;
            let sent = |cause| self.failed(at, false, cause);
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(sent)?.to_bytes();
            let mut idle = self.lock();
            if idle.len() < IDLE_MAX {
                idle.push((at, connection));
            }
            Ok(Response::from_parts(parts, body))
        };
        match timeout(self.call_timeout, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(self.failed(self.at(), false, "it did not answer in time".into())),
        }
    }

    /// Sends a call whose answer continues. The connection is its own.
    pub(super) async fn stream(
        &self,
        call: &Call,
    ) -> Result<(SendRequest<Body>, Response<Incoming>), NoAnswer> {
        let (_, connection, answer) = self.send(call).await?;
        Ok((connection, answer))
    }

    /// Sends a call to the first server that takes it.
    async fn send(&self, call: &Call) -> Result<(usize, SendRequest<Body>, Response<Incoming>), NoAnswer> {
        let mut failed = None;
        // An idle connection may have ended; each server is then asked over a new one.
        for _ in 0..IDLE_MAX + self.servers.len() {
            let at = self.at();
            let kept = self.kept(at);
            let was_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => match self.connect(at).await {
                    Ok(connection) => connection,
                    Err(cause) => {
                        let connects_failed = failed.as_ref().map_or(0, |(count, _)| *count) + 1;
                        let fault = self.failed(at, true, cause);
                        if connects_failed >= self.servers.len() {
                            return Err(fault);
                        }
                        failed = Some((connects_failed, fault));
                        continue;
                    }
                },
            };
            match connection.try_send_request(self.request(at, call)).await {
                Ok(answer) => return Ok((at, connection, answer)),
                Err(mut error) => {
                    let unsent = error.take_message().is_some();
                    if !(unsent && was_kept) {
                        return Err(self.failed(at, unsent, error.into_error().into()));
                    }
                }
            }
        }
        Err(self.failed(self.at(), true, "no connection lasts".into()))
    }

    fn request(&self, at: usize, call: &Call) -> Request<Body> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(http::header::HOST, &self.servers[at].name)
            .header(http::header::CONTENT_TYPE, "application/json");
        if let Some(token) = &call.token {
            request = request.header(http::header::AUTHORIZATION, &**token);
        }
        request.body(Full::new(call.body.clone())).expect("its parts are ours")
    }

    async fn connect(&self, at: usize) -> Result<SendRequest<Body>, Fault> {
        let server = &self.servers[at];
        let opened = async {
            let stream = TcpStream::connect((&*server.host, server.port)).await?;
            stream.set_nodelay(true)?;
            #[cfg(feature = "tls")]
            if let Some(tls) = &self.tls {
                let name = rustls::pki_types::ServerName::try_from(server.host.clone())?;
                return handshake(tls.connect(name, stream).await?).await;
            }
            handshake(stream).await
        };
        timeout(CONNECT_MAX, opened).await.map_err(|_| "no connection in time; is it reachable?")?
    }

    fn kept(&self, at: usize) -> Option<SendRequest<Body>> {
        let mut idle = self.lock();
        idle.retain(|(_, connection)| !connection.is_closed());
        let place = idle.iter().rposition(|(of, connection)| *of == at && connection.is_ready())?;
        Some(idle.swap_remove(place).1)
    }

    fn at(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.servers.len()
    }

    /// The next call goes to another server.
    fn failed(&self, at: usize, unsent: bool, cause: Fault) -> NoAnswer {
        self.lock().retain(|(of, _)| *of != at);
        let _ = self.current.compare_exchange(
            at,
            (at + 1) % self.servers.len(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        NoAnswer { server: format!("etcd at {}", self.servers[at].name), unsent, cause }
    }

    /// The server answers, and cannot do what it is asked for: the next call goes to another.
    pub(super) fn pass_on(&self) {
        let at = self.at();
        let _ = self.current.compare_exchange(
            at,
            (at + 1) % self.servers.len(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, SendRequest<Body>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Body>, Fault> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with its sender.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
