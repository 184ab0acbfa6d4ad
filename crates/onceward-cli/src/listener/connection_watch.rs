//! The deadlines of one connection. The connection's own task waits on them beside the connection itself.
//!
//! | what does not happen | the connection is closed after |
//! |---|---|
//! | a first request, complete to the end of its head | `head` |
//! | the rest of a head whose first byte has arrived (HTTP/1.1) | `head` |
//! | a next request | `idle` |
//! | the client reads what is sent to it, at a minimum rate | `write` |
//!
//! A slow request body is not here: its limit belongs to the body, because a request that is refused for it is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The slowest rate at which a client may read. The time that it may keep a write waiting is earned back at this rate.
const READ_BYTES_PER_SECOND_MIN: u64 = 256;

/// How long a connection may be without each kind of progress.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    pub head: Duration,
    pub idle: Duration,
    pub write: Duration,
}

/// What a connection is doing. Times are milliseconds since it was accepted.
#[derive(Debug)]
pub struct ConnectionWatch {
    accepted: Instant,
    timeouts: ConnectionTimeouts,
    /// Requests whose head has arrived and whose response has not been handed over completely.
    in_progress: AtomicUsize,
    had_request: AtomicBool,
    /// When the last request ended, or when the connection was accepted.
    idle_since: AtomicU64,
    /// When the first byte after that arrived, plus one; 0 if none has.
    head_since: AtomicU64,
    /// When a write had to wait, plus one; 0 if none waits.
    write_blocked_since: AtomicU64,
    /// How long writes may still wait.
    write_credit: AtomicU64,
    /// HTTP/2 sends frames that belong to no request, so a byte does not begin a head.
    multiplexed: AtomicBool,
    evicted: Notify,
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The head of a request did not arrive.
    SlowHead,
    /// No next request arrived.
    Idle,
    /// The client does not read.
    SlowReader,
    /// It had no request, and a new connection needed its place.
    Evicted,
}

impl ConnectionWatch {
    pub fn new(timeouts: ConnectionTimeouts) -> Self {
        Self {
            accepted: Instant::now(),
            timeouts,
            in_progress: AtomicUsize::new(0),
            had_request: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            write_blocked_since: AtomicU64::new(0),
            write_credit: AtomicU64::new(milliseconds(timeouts.write)),
            multiplexed: AtomicBool::new(false),
            evicted: Notify::new(),
        }
    }

    /// Resolves when the connection has to be closed.
    pub async fn overdue(&self) -> Closed {
        // What began after the last look is seen with this delay.
        let look_every = self.timeouts.head.min(self.timeouts.write).min(self.timeouts.idle) / 2;
        let look_every = look_every.max(Duration::from_millis(10));
        loop {
            let now = Instant::now();
            let (deadline, reason) = self.deadline(now);
            if deadline <= now {
                return reason;
            }
            tokio::select! {
                () = sleep_until(deadline.min(now + look_every)) => {}
                () = self.evicted.notified() => return Closed::Evicted,
            }
        }
    }

    fn deadline(&self, now: Instant) -> (Instant, Closed) {
        let at = |ms: u64| self.accepted + Duration::from_millis(ms);
        let blocked_since = self.write_blocked_since.load(Ordering::Relaxed);
        if blocked_since > 0 {
            let credit = self.write_credit.load(Ordering::Relaxed);
            return (at(blocked_since - 1 + credit), Closed::SlowReader);
        }
        if self.in_progress.load(Ordering::Relaxed) > 0 {
            return (now + self.timeouts.idle, Closed::Idle);
        }
        let idle_since = at(self.idle_since.load(Ordering::Relaxed));
        if !self.had_request.load(Ordering::Relaxed) {
            return (idle_since + self.timeouts.head, Closed::SlowHead);
        }
        let idle = (idle_since + self.timeouts.idle, Closed::Idle);
        match self.head_since.load(Ordering::Relaxed) {
            0 => idle,
            ms => {
                let head = (at(ms - 1) + self.timeouts.head, Closed::SlowHead);
                if head.0 < idle.0 { head } else { idle }
            }
        }
    }

    /// A request has begun: its head is complete. Dropping the value ends it.
    pub fn begin_request(self: &Arc<Self>, multiplexed: bool) -> RequestInProgress {
        self.had_request.store(true, Ordering::Relaxed);
        self.multiplexed.store(multiplexed, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(self.clone())
    }

    /// Begins again with the first deadline, after a TLS handshake.
    pub fn restart(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
    }

    /// Returns whether no request is in progress, and whether there has never been one.
    pub fn idle(&self) -> Option<NeverUsed> {
        let idle = self.in_progress.load(Ordering::Relaxed) == 0
            && self.write_blocked_since.load(Ordering::Relaxed) == 0;
        idle.then(|| NeverUsed(!self.had_request.load(Ordering::Relaxed)))
    }

    /// Closes the connection.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Bytes have arrived.
    pub(super) fn received(&self) {
        if self.in_progress.load(Ordering::Relaxed) == 0
            && !self.multiplexed.load(Ordering::Relaxed)
            && self.head_since.load(Ordering::Relaxed) == 0
        {
            self.head_since.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    /// A write has to wait for the client.
    pub(super) fn write_blocked(&self) {
        if self.write_blocked_since.load(Ordering::Relaxed) == 0 {
            self.write_blocked_since.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    /// The socket has taken bytes.
    pub(super) fn wrote(&self, bytes: usize) {
        let full = milliseconds(self.timeouts.write);
        let (blocked_since, mut credit) =
            (self.write_blocked_since.swap(0, Ordering::Relaxed), self.write_credit.load(Ordering::Relaxed));
        if blocked_since > 0 {
            let now = self.now();
            credit = credit.saturating_sub(now - (blocked_since - 1));
            if self.in_progress.load(Ordering::Relaxed) == 0 {
                // The response is still being sent: the client could not have asked for more.
                self.idle_since.store(now, Ordering::Relaxed);
            }
        } else if credit == full {
            return;
        }
        let earned = bytes as u64 * 1000 / READ_BYTES_PER_SECOND_MIN;
        self.write_credit.store(full.min(credit + earned), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        milliseconds(self.accepted.elapsed())
    }
}

/// Whether an idle connection has never had a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverUsed(pub bool);

/// One request of a connection, until its response is handed over or dropped.
#[derive(Debug)]
pub struct RequestInProgress(Arc<ConnectionWatch>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        // The time first: an idle connection must not be seen with an old one.
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.in_progress.fetch_sub(1, Ordering::Release);
    }
}

impl Closed {
    pub const ALL: [Self; 4] = [Self::SlowHead, Self::Idle, Self::SlowReader, Self::Evicted];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowHead => "slow_head",
            Self::Idle => "idle",
            Self::SlowReader => "slow_reader",
            Self::Evicted => "evicted",
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "connection_watch_test.rs"]
mod tests;
