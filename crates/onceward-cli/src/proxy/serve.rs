//! Serves clients: HTTP/1.1 and HTTP/2 on one port, with limits on the time and memory of every connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use onceward_http::{ResponseBody, publication};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service;
use tracing::Instrument;

use super::body::{GatewayBody, SlowSenderLimit, StreamedBody};
use super::callers::CertificateSubject;
use super::fields::ClientConnection;
use super::route_table::{CurrentRoutes, GatewayState};
use super::tls::ClientTls;
use super::worker_threads::WorkerThreads;
use crate::telemetry;

/// The maximum size of the head of a request, in HTTP/1.1 and HTTP/2.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 250;
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A running gateway.
pub struct Gateway {
    pub state: GatewayState,
    pub table: CurrentRoutes,
    pub tls: Option<ClientTls>,
    pub bounds: ConnectionLimits,
}

/// Limits on the connections of clients.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub connections_max: usize,
    pub head_timeout: Duration,
    pub body_grace: Duration,
    pub drain_timeout: Duration,
}

/// Serves until `stop` resolves, then lets running requests finish.
pub async fn serve(
    gateway: Arc<Gateway>,
    threads: &WorkerThreads,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(gateway.bounds.connections_max));
    let mut stop = pin!(stop);
    loop {
        // Further connections wait in the queue of the operating system.
        let permit = tokio::select! {
            permit = permits.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely no file descriptors are left: other connections must end first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (gateway, watcher) = (gateway.clone(), graceful.watcher());
        // Each thread has a reactor of its own for its sockets.
        let stream = stream.into_std();
        threads.start(async move {
            if let Err(error) = connection(gateway, stream, peer, watcher).await {
                tracing::debug!(%peer, %error, "a connection failed");
            }
            drop(permit);
        });
    }
    drop(listener);
    let bound = gateway.bounds.drain_timeout;
    if tokio::time::timeout(bound, graceful.shutdown()).await.is_err() {
        tracing::warn!(?bound, "some connections did not end in time and are aborted");
    }
}

type Watcher = hyper_util::server::graceful::Watcher;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    gateway: Arc<Gateway>,
    stream: io::Result<std::net::TcpStream>,
    peer: SocketAddr,
    watcher: Watcher,
) -> Result<(), BoxError> {
    let stream = TcpStream::from_std(stream?)?;
    stream.set_nodelay(true)?;
    let client = peer.ip().to_canonical();
    match gateway.tls.clone() {
        None => serve_http(gateway, stream, ClientConnection { client, scheme: "http" }, None, watcher).await,
        Some(tls) => {
            let (stream, subject) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
            serve_http(gateway, stream, ClientConnection { client, scheme: "https" }, subject, watcher).await
        }
    }
}

async fn serve_http<S>(
    gateway: Arc<Gateway>,
    stream: S,
    origin: ClientConnection,
    subject: Option<CertificateSubject>,
    watcher: Watcher,
) -> Result<(), BoxError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(gateway.bounds.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("it is small"))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(origin);
        if let Some(subject) = &subject {
            request.extensions_mut().insert(subject.clone());
        }
        answer(gateway.clone(), request)
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    watcher.watch(connection).await
}

async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody<GatewayBody>>, Infallible> {
    let grace = gateway.bounds.body_grace;
    let mut request = request
        .map(|body| GatewayBody::Stream(StreamedBody::new(body, Some(SlowSenderLimit::rate(grace)), None)));
    if request.uri().path() == publication::PATH {
        let table = gateway.table.load();
        return Ok(table
            .published()
            .respond(request.method(), request.uri().query())
            .map(ResponseBody::whole));
    }
    if request.method() == Method::CONNECT {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "this is a gateway to one service, not a tunnel\n"));
    }
    let mut service = {
        let table = gateway.table.load();
        let (service, scope) = table.service(request.method(), request.uri().path());
        gateway.state.name_caller(scope, &mut request);
        service
    };
    let span = telemetry::span("gateway", &request);
    if span.is_disabled() {
        return service.call(request).await;
    }
    service.call(request).instrument(span).await
}

fn plain(status: StatusCode, text: &'static str) -> Response<ResponseBody<GatewayBody>> {
    let mut response = Response::new(ResponseBody::whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
