//! The rest of a response body that had not arrived with its head, over a connection that is read where the body is.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use onceward_http::BoxError;

use super::direct::DirectConnection;
use super::pool::Pool;
use super::service_body::IdleLimit;

/// A body with a declared length that is being read.
pub struct DirectBody {
    /// `None` after the last byte, or after an error.
    connection: Option<DirectConnection>,
    /// Came with the head.
    arrived: Bytes,
    bytes_left: u64,
    limit: Option<IdleLimit>,
    /// Where the connection goes after the last byte; without one it is closed.
    pool: Option<Arc<Pool>>,
}

impl DirectBody {
    /// `idle_max` is the longest time between two frames. The connection is closed if the body is dropped before its end.
    pub fn new(
        connection: DirectConnection,
        arrived: Bytes,
        bytes_left: u64,
        idle_max: Option<Duration>,
        pool: Option<Arc<Pool>>,
    ) -> Self {
        Self { connection: Some(connection), arrived, bytes_left, limit: idle_max.map(IdleLimit::new), pool }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.arrived.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.arrived)))));
        }
        loop {
            let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
            let arrived = connection.take_arrived(self.bytes_left);
            if !arrived.is_empty() {
                self.bytes_left -= arrived.len() as u64;
                if let Some(limit) = &mut self.limit {
                    limit.restart();
                }
                if self.bytes_left == 0 {
                    self.end();
                }
                return Poll::Ready(Some(Ok(Frame::data(arrived))));
            }
            match connection.poll_more(cx) {
                Poll::Ready(Ok(0)) => {
                    self.connection = None;
                    return Poll::Ready(Some(
                        Err("the service closed the connection in its response".into()),
                    ));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.connection = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Pending => {
                    let Some(limit) = &mut self.limit else { return Poll::Pending };
                    ready!(limit.poll_too_slow(cx));
                    self.connection = None;
                    return Poll::Ready(Some(Err("the service is too slow".into())));
                }
            }
        }
    }

    pub fn is_end_stream(&self) -> bool {
        self.bytes_left == 0 && self.arrived.is_empty()
    }

    pub fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left + self.arrived.len() as u64)
    }

    fn end(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take()) {
            pool.put_back_direct(connection);
        }
    }
}
