//! What a worker is told, and what it tells: its options, what became of an intent, and its counters.

use std::time::Duration;

/// How many intents a worker runs at a time, and how often it looks for more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// Intents worked on at the same time.
    pub concurrency: usize,
    /// Longest time between two looks. What this process enqueues is begun at once; for the rest, a worker that
    /// finds nothing looks ever more rarely, up to this.
    pub pause: Duration,
    /// How long after its lease expired an abandoned intent is left to its caller's own retry.
    pub grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { concurrency: 8, pause: Duration::from_secs(1), grace: Duration::from_secs(10) }
    }
}

impl WorkerOptions {
    /// Sets how many intents are worked on at the same time.
    pub fn with_concurrency(mut self, intents: usize) -> Self {
        self.concurrency = intents;
        self
    }

    /// Sets the longest time between two looks.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how long an intent is left to its caller's own retry after its lease ended.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

/// The result of working on one intent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Worked {
    /// It has an outcome now.
    Finished,
    /// Its code did not get to one, for this reason. It waits for its next try.
    Failed(String),
    /// Its code will continue with it later.
    Suspended,
    /// Its tries are used up.
    Dead,
    /// Another worker or caller has it.
    TakenElsewhere,
    /// It must not be run again until it is settled.
    NeedsSettlement,
    /// There is nothing to do: it is done, it is running, or there is no receipt of it.
    NothingToDo,
    /// There is no code for it here.
    NoCode,
}

/// Counts of a worker, and the result of its last search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerCounts {
    /// Intents that got an outcome.
    pub finished: u64,
    /// Times that the code did not get to one; it is tried again later.
    pub failed: u64,
    /// Times that the code was suspended.
    pub suspended: u64,
    /// Intents whose tries were used up.
    pub dead: u64,
    /// Intents that another worker or caller had taken.
    pub taken_elsewhere: u64,
    /// At the last look: intents that were left a moment ago.
    pub in_grace: u64,
    /// At the last look: intents that must not be run again until they are settled.
    pub needs_settlement: u64,
    /// At the last look: intents that are due, of operations without code here. Steps are not counted: they continue
    /// with their intents.
    pub no_code: u64,
    /// At the last look: receipts that could not be read.
    pub unreadable: u64,
}
