//! The clock of a store that lives in this process: microseconds since 1970.
//!
//! The engine itself never reads it; its time comes from [`Runtime`](crate::Runtime).

use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time to a store that has no server to ask. A trait, so that tests can move time.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 1970. May jump; a store must not rely on it growing.
    fn now_us(&self) -> u64;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
