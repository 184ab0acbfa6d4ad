//! Sends requests over connections that the task of the request drives itself, and keeps those connections meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use onceward::Lease;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::body::GatewayBody;
use super::direct::{DirectAnswer, DirectConnection, DirectFailure};
use super::direct_body::DirectBody;
use super::handed_over::HandedOver;
use super::pool::{
    Connection, IDLE_CONNECTIONS_MAX, IDLE_MAX, Pool, SendFailure, SendOptions, UpstreamReuse, chain,
    check_lease, handshake,
};
use super::response_head::PlainHead;
use super::upstream_stream::UpstreamStream;

/// A body of a known length up to this is awaited and sent with its head.
const AWAITED_BODY_BYTES_MAX: u64 = 16 << 10;
/// After a response that hyper had to read, this number of requests go to hyper at once: a service that answers in chunks
/// usually does so always.
const LEFT_TO_HYPER: u32 = 64;

/// The idle connections of a pool.
#[derive(Default)]
pub struct DirectConnections {
    /// The one that was used last is at the back.
    idle: Mutex<VecDeque<(DirectConnection, Instant)>>,
    /// A task closes those that are idle for too long: a connection by itself does not notice that it was closed.
    is_reaped: AtomicBool,
    left_to_hyper: AtomicU32,
}

impl DirectConnections {
    /// Returns whether the next request should be sent by hyper.
    pub fn leaves_to_hyper(&self) -> bool {
        let left = self.left_to_hyper.load(Ordering::Relaxed);
        if left > 0 {
            self.left_to_hyper.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    fn take(&self) -> Option<DirectConnection> {
        loop {
            let (connection, since) = self.lock().pop_back()?;
            if since.elapsed() <= IDLE_MAX && connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    fn put(&self, connection: DirectConnection) {
        let mut idle = self.lock();
        if idle.len() >= IDLE_CONNECTIONS_MAX {
            idle.pop_front();
        }
        idle.push_back((connection, Instant::now()));
    }

    /// Closes those that were idle for too long; whether others are left.
    fn reap(&self) -> bool {
        let mut idle = self.lock();
        while idle.front().is_some_and(|(_, since)| since.elapsed() >= IDLE_MAX) {
            idle.pop_front();
        }
        let any_left = !idle.is_empty();
        // Under the lock: the next one to be added sees it.
        self.is_reaped.store(any_left, Ordering::Relaxed);
        any_left
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(DirectConnection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request with its body, if that is short and its length is known: it then leaves in one piece.
pub async fn with_short_body(request: Request<GatewayBody>) -> Result<Request<GatewayBody>, SendFailure> {
    let is_short =
        |body: &GatewayBody| body.size_hint().exact().is_some_and(|bytes| bytes <= AWAITED_BODY_BYTES_MAX);
    if request.body().length().is_some() || !is_short(request.body()) {
        return Ok(request);
    }
    let (head, body) = request.into_parts();
    let body = Box::pin(body.collect()).await.map_err(|error| SendFailure::NotSent(error.to_string()))?;
    Ok(Request::from_parts(head, GatewayBody::from(body.to_bytes())))
}

impl Pool {
    /// Sends a request that is whole.
    pub(super) async fn send_directly(
        self: &Arc<Self>,
        request: &Request<GatewayBody>,
        options: SendOptions,
        lease: Option<&Lease>,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        loop {
            let idle = match options.reuse {
                UpstreamReuse::Safe => self.direct.take(),
                UpstreamReuse::Never => None,
            };
            let reused = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => {
                    let stream = Box::pin(self.stream()).await;
                    DirectConnection::new(stream.map_err(|error| SendFailure::NotSent(error.to_string()))?)
                }
            };
            check_lease(lease)?;
            let deadline = tokio::time::Instant::now() + options.answer_timeout;
            return match timeout_at(deadline, connection.send(request)).await {
                Ok(Ok(DirectAnswer::Plain(head, connection))) => {
                    Ok(self.plain_response(head, connection, options))
                }
                Ok(Ok(DirectAnswer::Unusual(stream, read))) => {
                    let method = request.method().clone();
                    Box::pin(self.let_hyper_read(method, stream, read, options, deadline)).await
                }
                // The service had closed it while it was idle.
                Ok(Err(DirectFailure::NotSent(_))) if reused => continue,
                Ok(Err(DirectFailure::NotSent(error))) => Err(SendFailure::NotSent(error.to_string())),
                Ok(Err(DirectFailure::NoAnswer(why))) => Err(SendFailure::NoAnswer(why)),
                Err(_) => Err(options.no_answer()),
            };
        }
    }

    fn plain_response(
        self: &Arc<Self>,
        head: PlainHead,
        mut connection: DirectConnection,
        options: SendOptions,
    ) -> Response<GatewayBody> {
        let PlainHead { response, body_bytes, keeps_connection } = head;
        let may_be_reused = options.reuse == UpstreamReuse::Safe && keeps_connection;
        let arrived = connection.take_arrived(body_bytes);
        let bytes_left = body_bytes - arrived.len() as u64;
        let body = if bytes_left == 0 {
            if may_be_reused {
                self.put_back_direct(connection);
            }
            GatewayBody::from(arrived)
        } else {
            let pool = may_be_reused.then(|| self.clone());
            GatewayBody::FromDirect(DirectBody::new(connection, arrived, bytes_left, options.idle_max, pool))
        };
        response.map(|()| body)
    }

    /// Lets hyper read a response.
    async fn let_hyper_read(
        self: &Arc<Self>,
        method: Method,
        stream: TcpStream,
        read: Bytes,
        options: SendOptions,
        deadline: tokio::time::Instant,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        self.direct.left_to_hyper.store(LEFT_TO_HYPER, Ordering::Relaxed);
        let no_answer = |why: String| SendFailure::NoAnswer(why);
        let (stream, socket) = UpstreamStream::new(stream);
        let sender = handshake(HandedOver::new(stream, read)).await;
        let sender = sender.map_err(|error| no_answer(error.to_string()))?;
        let mut connection = Connection { sender, socket };
        let mut stand_in = Request::new(GatewayBody::Whole(None));
        *stand_in.method_mut() = method;
        match timeout_at(deadline, connection.sender.try_send_request(stand_in)).await {
            Ok(Ok(response)) => self.received(response, connection, false, options),
            Ok(Err(error)) => Err(no_answer(chain(error.error()))),
            Err(_) => Err(options.no_answer()),
        }
    }

    /// Takes back a connection whose response has been read to its end.
    pub(super) fn put_back_direct(self: &Arc<Self>, connection: DirectConnection) {
        // What came after the response would be taken for the next one.
        if !connection.is_at_end() {
            return;
        }
        self.direct.put(connection);
        if !self.direct.is_reaped.swap(true, Ordering::Relaxed) {
            let pool = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(IDLE_MAX).await;
                    let Some(pool) = pool.upgrade() else { return };
                    if !pool.direct.reap() {
                        return;
                    }
                }
            });
        }
    }
}

#[cfg(test)]
#[path = "direct_pool_test.rs"]
mod tests;

#[cfg(test)]
#[path = "direct_fuzz_test.rs"]
mod fuzz_tests;
