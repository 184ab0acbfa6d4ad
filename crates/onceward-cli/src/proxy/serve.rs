//! Serves clients: HTTP/1.1 and HTTP/2 on one port, with limits on the time and memory of every connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use onceward_http::{ClientAddress, FromBrowser, ResponseBody, publication};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;
use tracing::Instrument;

use super::body::GatewayBody;
use super::callers::CertificateSubject;
use super::client_body::ClientBody;
use super::fields::ClientConnection;
use super::forward::plain;
use super::head_rules::{self, UnderscoreFields};
use super::route_table::{CurrentRoutes, GatewayState};
use super::sent_body::SentBody;
use super::tls::ClientTls;
use super::worker_threads::WorkerThreads;
use crate::listener::{
    AddressGroup, ConnectionSlots, ConnectionTimeouts, ConnectionWatch, Networks, Slot, UpgradingConnection,
    WatchedStream,
};
use crate::telemetry;

/// The maximum size of the head of a request, in HTTP/1.1 and HTTP/2.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 250;
/// A running gateway.
pub struct Gateway {
    pub state: GatewayState,
    pub table: CurrentRoutes,
    /// Held while the table is made again, from a file or without former terms.
    pub rebuilding: tokio::sync::Mutex<()>,
    pub tls: Option<Arc<ClientTls>>,
    pub bounds: ConnectionLimits,
    pub slots: Arc<ConnectionSlots>,
    pub trusted_proxies: Networks,
}

/// Limits on the connections of clients.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub timeouts: ConnectionTimeouts,
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
    let mut stop = pin!(stop);
    loop {
        let (stream, peer, slot) = tokio::select! {
            accepted = accept(&listener, &gateway.slots) => accepted,
            () = &mut stop => break,
        };
        let (gateway, watcher) = (gateway.clone(), graceful.watcher());
        // Each thread has a reactor of its own for its sockets.
        let stream = stream.into_std();
        threads.start(async move {
            let (slots, watch) = (gateway.slots.clone(), slot.watch().clone());
            match slots.drive(&watch, connection(gateway, stream, peer, slot, watcher)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a connection failed"),
                Err(closed) => tracing::debug!(%peer, reason = closed.name(), "a connection was closed"),
            }
        });
    }
    drop(listener);
    let bound = gateway.bounds.drain_timeout;
    if tokio::time::timeout(bound, graceful.shutdown()).await.is_err() {
        tracing::warn!(?bound, "some connections did not end in time and are aborted");
    }
}

/// The next connection that gets a slot. While all are in use, further connections wait in the queue of the operating
/// system.
async fn accept(listener: &TcpListener, slots: &Arc<ConnectionSlots>) -> (TcpStream, SocketAddr, Slot) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match slots.take(peer.ip()).await {
                Some(slot) => return (stream, peer, slot),
                None => tracing::debug!(%peer, "the address has its share of connections already"),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                slots.make_space(&error).await;
            }
        }
    }
}

type Watcher = hyper_util::server::graceful::Watcher;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    gateway: Arc<Gateway>,
    stream: io::Result<std::net::TcpStream>,
    peer: SocketAddr,
    slot: Slot,
    watcher: Watcher,
) -> Result<(), BoxError> {
    let watch = slot.watch().clone();
    let stream = WatchedStream::new(TcpStream::from_std(stream?)?, slot)?;
    let client = peer.ip().to_canonical();
    let trusted = gateway.trusted_proxies.contains(client);
    let origin = |scheme| ClientConnection { client, scheme, trusted };
    match gateway.tls.clone() {
        None => serve_http(gateway, stream, watch, origin("http"), None, watcher).await,
        Some(tls) => {
            // The first deadline of the connection covers the handshake.
            let (stream, subject) = tls.accept(stream).await?;
            watch.restart();
            serve_http(gateway, stream, watch, origin("https"), subject, watcher).await
        }
    }
}

async fn serve_http<S>(
    gateway: Arc<Gateway>,
    stream: S,
    watch: Arc<ConnectionWatch>,
    origin: ClientConnection,
    subject: Option<CertificateSubject>,
    watcher: Watcher,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    // The deadline of a head is the connection's own: hyper's begins only after the protocol was told from the first
    // bytes. A client that has closed its sending side still gets its answer.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("it is small"))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Duration::from_secs(30));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let multiplexed = request.version() == Version::HTTP_2;
        let in_progress = watch.begin_request(multiplexed);
        request.extensions_mut().insert(origin);
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(UpgradingConnection::new(gateway.slots.clone(), watch.clone()));
        }
        if let Some(subject) = &subject {
            request.extensions_mut().insert(subject.clone());
        }
        let gateway = gateway.clone();
        async move {
            let unread_max = gateway.bounds.timeouts.write;
            let response = answer(gateway, request, origin).await?;
            Ok::<_, Infallible>(
                response.map(|body| SentBody::new(body, unread_max, multiplexed, in_progress)),
            )
        }
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    watcher.watch(connection).await
}

/// The answer to a request. What is refused before its route is known is refused readably for the pages that the route of
/// its path allows.
async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    origin: ClientConnection,
) -> Result<Response<ResponseBody<GatewayBody>>, Infallible> {
    let from = FromBrowser::of(&request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match answer_by_route(&gateway, request, origin).await {
        Ok(response) => response,
        Err(refused) => {
            let table = gateway.table.load();
            let allowed = table.allowed_origins(&gateway.state, &method, &path);
            Ok(from.complete(allowed, *refused, || ResponseBody::whole(Bytes::new())))
        }
    }
}

type Answer = Response<ResponseBody<GatewayBody>>;

/// The answer of the request's route; an error is an answer that was made without it.
async fn answer_by_route(
    gateway: &Arc<Gateway>,
    request: Request<Incoming>,
    origin: ClientConnection,
) -> Result<Result<Answer, Infallible>, Box<Answer>> {
    let (mut progress, version) = (None, request.version());
    let mut request = request.map(|body| {
        let body = ClientBody::new(body, version, gateway.bounds.body_grace);
        progress = body.progress();
        GatewayBody::FromClient(body)
    });
    if request.method() == Method::CONNECT {
        return Err(refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is a gateway to one service, not a tunnel",
        ));
    }
    let rules = gateway.state.path_rules;
    let checked = if gateway.state.underscore_fields {
        let table = gateway.table.load();
        let underscores = UnderscoreFields::PassedUnlessRead(table.fields_read());
        head_rules::check(&mut request, rules, underscores, origin.trusted)
    } else {
        head_rules::check(&mut request, rules, UnderscoreFields::Removed, origin.trusted)
    };
    if let Err((status, why)) = checked {
        return Err(refused(status, why));
    }
    if request.uri().path() == publication::PATH {
        let table = gateway.table.load();
        if let Some(published) = table.published() {
            let published = published.respond(request.method(), request.uri().query());
            return Err(Box::new(published.map(ResponseBody::whole)));
        }
    }
    let client = head_rules::client_address(request.headers(), origin.client, &gateway.trusted_proxies);
    if let Some(client) = client {
        request.extensions_mut().insert(ClientAddress(AddressGroup::of(client).address()));
    }
    if let Some(progress) = &progress {
        request.extensions_mut().insert(progress.clone());
    }
    let mut service = {
        let table = gateway.table.load();
        // A preflight is about the method that it asks for.
        let asked = FromBrowser::asked_method(&request);
        let method = asked.as_ref().unwrap_or(request.method());
        let chosen = table.service(&gateway.state, method, request.uri().path());
        gateway.state.name_caller(&chosen, &mut request);
        chosen.service
    };
    let span = telemetry::span("gateway", &request);
    let response = if span.is_disabled() {
        service.call(request).await
    } else {
        service.call(request).instrument(span).await
    };
    // The layer refuses a body that fails with a plain 400; what failed is known here.
    match progress.and_then(|progress| progress.fault()) {
        Some(fault)
            if response.as_ref().is_ok_and(|response| response.status() == StatusCode::BAD_REQUEST) =>
        {
            let (status, text) = fault.answer();
            Err(refused(status, text))
        }
        _ => Ok(response),
    }
}

fn refused(status: StatusCode, why: &str) -> Box<Answer> {
    Box::new(plain::<Bytes>(status, why).map(ResponseBody::whole))
}
