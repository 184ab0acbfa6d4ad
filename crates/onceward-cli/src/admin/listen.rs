//! The listener itself: HTTP/1.1 and HTTP/2, with a bound on everything a stranger could hold open.

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

/// Connections at once: some services with a pool each, a monitor, a few people.
const CONNECTIONS_MAX: usize = 4_096;
/// The head of a request must be here within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A silent HTTP/2 connection is asked for a sign of life this often.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Answers under way may take this long once the listener is to stop.
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);
/// After a failed accept (no file descriptors left, for one), so that it does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the admin listener until `shutdown` is ready, then lets answers under way finish.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "an admin connection ended badly");
            }
            drop(place);
        });
    }
    drop(listener);
    if timeout(DRAIN_AT_MOST, graceful.shutdown()).await.is_err() {
        tracing::info!("admin requests were still waiting at the end, and are cut off");
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let place = places.clone().acquire_owned().await.expect("never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
