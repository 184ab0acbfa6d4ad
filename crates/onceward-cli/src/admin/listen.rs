//! Accepts admin connections: HTTP/1.1 and HTTP/2, with limits on connections and time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Connections at once. Enough for several services with a connection pool each, monitors and operators.
const CONNECTIONS_MAX: usize = 4_096;
/// The head of a request must arrive within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The interval of pings on an idle HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long running requests may take after shutdown begins.
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);
/// The pause after a failed accept, so that the loop is not busy while no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the admin listener until `shutdown` is ready, then lets running requests finish.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, permit) = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            () = &mut shutdown => break,
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "an admin connection failed");
            }
            drop(permit);
        });
    }
    drop(listener);
    if timeout(DRAIN_AT_MOST, graceful.shutdown()).await.is_err() {
        tracing::info!("admin requests did not finish in time and are aborted");
    }
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = permits.clone().acquire_owned().await.expect("never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return (stream, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
