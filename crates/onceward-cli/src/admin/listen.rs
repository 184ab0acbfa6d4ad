//! Accepts admin connections: HTTP/1.1 and HTTP/2, with limits on connections and time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::listener::{
    ConnectionSlots, ConnectionTimeouts, CountedBody, Networks, Slot, SlotLimits, WatchedStream,
};

/// Connections at once. Enough for several services with a connection pool each, monitors and operators.
const CONNECTIONS_MAX: usize = 4_096;
/// The head of a request must arrive within this time, the first one also after connecting.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be without a request.
const IDLE_AT_MOST: Duration = Duration::from_secs(75);
/// How long a client may leave a response unread.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// The interval of pings on an idle HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long running requests may take after shutdown begins.
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);

/// Serves the admin listener until `shutdown` is ready, then lets running requests finish.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router);
    let graceful = GracefulShutdown::new();
    let timeouts = ConnectionTimeouts { head: HEAD_WITHIN, idle: IDLE_AT_MOST, write: READ_WITHIN };
    let slots = ConnectionSlots::new(SlotLimits {
        connections_max: CONNECTIONS_MAX,
        // Services behind one address share it, and other machines need a token.
        per_address_max: CONNECTIONS_MAX,
        exempt: Networks::default(),
        timeouts,
    });
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, slot) = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            () = &mut shutdown => break,
        };
        let watch = slot.watch().clone();
        let Ok(stream) = WatchedStream::new(stream, slot) else { continue };
        let (service, requests) = (service.clone(), watch.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let in_progress = requests.begin_request(request.version() == http::Version::HTTP_2);
            let answer = service.call(request);
            async move { answer.await.map(|response| response.map(|body| CountedBody::new(body, in_progress))) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let (connection, slots) = (graceful.watch(connection), slots.clone());
        tokio::spawn(async move {
            match slots.drive(&watch, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(error, "an admin connection failed"),
                Err(closed) => tracing::debug!(reason = closed.name(), "an admin connection was closed"),
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_AT_MOST, graceful.shutdown()).await.is_err() {
        tracing::info!("admin requests did not finish in time and are aborted");
    }
}

async fn accept(listener: &TcpListener, slots: &Arc<ConnectionSlots>) -> (TcpStream, Slot) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(slot) = slots.take(peer.ip()).await {
                    return (stream, slot);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                slots.make_space(&error).await;
            }
        }
    }
}
