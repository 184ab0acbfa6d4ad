//! The sizes of a run: quick or full.

use std::time::Duration;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct Scale {
    /// As it stands in the report.
    pub name: &'static str,
    /// Turns of each side.
    pub rounds: usize,
    /// Length of one turn of a side that is measured by time.
    pub round: Duration,
    /// Length of a turn that has flushes, compactions and new journals of the embedded store in it, if there are such.
    pub long_round: Option<Duration>,
    /// Calls in one turn of a side that is measured by calls.
    pub calls: usize,
    /// Numbers of connections to the gateway.
    pub connections: &'static [usize],
    /// Sizes of a store that grows, in receipts.
    pub sizes: &'static [u64],
    /// Copies of one request.
    pub copies: u64,
    /// Length of the memory run of the gateway, and of the transaction that stays open beside a relay.
    pub memory: Duration,
}

impl Scale {
    /// All of it in less than five minutes.
    pub fn quick() -> Self {
        Self {
            name: "quick",
            rounds: 3,
            round: Duration::from_secs(2),
            long_round: None,
            calls: 20_000,
            connections: &[64],
            sizes: &[100_000, 1_000_000],
            copies: 10_000,
            memory: Duration::from_secs(600),
        }
    }

    /// All of it in less than thirty minutes: more and longer rounds, larger stores, more connections.
    pub fn full() -> Self {
        Self {
            name: "full",
            rounds: 5,
            round: Duration::from_secs(4),
            long_round: Some(Duration::from_secs(8)),
            calls: 50_000,
            connections: &[64, 256],
            sizes: &[100_000, 1_000_000, 10_000_000],
            ..Self::quick()
        }
    }

    /// Just enough to show that a benchmark works; its numbers mean nothing.
    pub fn tiny() -> Self {
        Self {
            name: "tiny",
            rounds: 3,
            round: Duration::from_millis(20),
            long_round: None,
            calls: 50,
            connections: &[4],
            sizes: &[500, 1_000],
            copies: 50,
            memory: Duration::from_secs(1),
        }
    }
}
