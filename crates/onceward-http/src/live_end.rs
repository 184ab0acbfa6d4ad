//! The sending end of a response that is sent while it arrives. A run waits for its client only for a time: then the client is
//! cut off, and the run continues without it.
//!
//! ```text
//! one piece         waits at most `write_timeout` for the client
//! all of them       wait at most `write_timeout` + 1 second per 32 KiB that the client has taken
//! the service       has all the time that it needs: what it takes to answer is not counted
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout};

use crate::body::{BoxError, Piece};
use crate::metrics::Metrics;

/// A client that takes less than this per second holds up the run, even if it never pauses.
const BYTES_PER_SECOND_MIN: u64 = 32 << 10;

/// The sending end of a live response. A client may count bytes instead of waiting for the end, so the piece that
/// completes the announced length is held back until the receipt is written.
pub(crate) struct LiveEnd {
    /// `None` once the client is gone or was cut off.
    sender: Option<mpsc::Sender<Piece>>,
    left: Option<u64>,
    held_back: Option<Bytes>,
    write_timeout: Duration,
    /// How long the run has waited for the client.
    waited: Duration,
    sent: u64,
    metrics: Arc<Metrics>,
}

impl LiveEnd {
    /// The end of a response that announces this length, if it does.
    pub(crate) fn new(
        sender: mpsc::Sender<Piece>,
        announced: Option<u64>,
        write_timeout: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (sender, waited) = (Some(sender), Duration::ZERO);
        Self { sender, left: announced, held_back: None, write_timeout, waited, sent: 0, metrics }
    }

    /// Sends a piece. If the client is gone, the rest is still read: a client must not interrupt the service.
    pub(crate) async fn pass(&mut self, data: Bytes) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(data.len() as u64);
            if *left == 0 && self.held_back.is_none() {
                self.held_back = Some(data);
                return;
            }
        }
        self.send_piece(Piece::Data(data)).await;
    }

    /// Tells the client that the response broke off.
    pub(crate) async fn break_off(mut self, error: BoxError) {
        self.send_piece(Piece::Broken(error)).await;
    }

    /// Completes the response.
    pub(crate) async fn send(mut self) {
        if let Some(data) = self.held_back.take() {
            self.send_piece(Piece::Data(data)).await;
        }
        self.send_piece(Piece::End).await;
    }

    async fn send_piece(&mut self, piece: Piece) {
        let Some(sender) = &self.sender else { return };
        let bytes = match &piece {
            Piece::Data(data) => data.len() as u64,
            Piece::End | Piece::Broken(_) => 0,
        };
        let gone = match sender.try_send(piece) {
            Ok(()) => false,
            Err(TrySendError::Closed(_)) => true,
            Err(TrySendError::Full(piece)) => {
                let began = Instant::now();
                let taken_in = Duration::from_secs(self.sent / BYTES_PER_SECOND_MIN);
                let left = (self.write_timeout + taken_in).saturating_sub(self.waited);
                let sent = timeout(left.min(self.write_timeout), sender.send(piece)).await;
                self.waited += began.elapsed();
                if sent.is_err() {
                    self.metrics.slow_clients_cut_off.one();
                }
                !matches!(sent, Ok(Ok(())))
            }
        };
        if gone {
            // Without its end, the body fails for a client that still reads.
            self.sender = None;
        } else {
            self.sent += bytes;
        }
    }
}

#[cfg(test)]
#[path = "live_end_test.rs"]
mod tests;
