//! What a store promises, and what makes it faster.

use std::time::Duration;

/// The capabilities of a store: its promises, and hints for speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// A short name for messages: `embedded`, `memory`, `postgres`, …
    pub name: &'static str,
    /// Its promises. The engine refuses to be built on a store whose promises do not make it fit to be
    /// the record of truth, unless that is accepted explicitly.
    pub promises: Promises,
    /// Hints for speed. Wrong hints change speed and nothing else.
    pub hints: Hints,
}

impl Caps {
    /// A store of this name that promises `promises`, with the default hints.
    pub fn new(name: &'static str, promises: Promises) -> Self {
        Self { name, promises, hints: Hints::default() }
    }

    /// The same store with other hints.
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }
}

/// The promises of a store. Begin from [`Promises::default`], which promises nothing.
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own, not a mode")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Acknowledged writes survive a crash of the process and of the machine.
    pub durable: bool,
    /// Of two swaps that saw the same thing, exactly one wins; also across a failover, unless
    /// [`failover_loss`](Self::failover_loss) says otherwise.
    pub atomic: bool,
    /// A failover may lose what was answered; two swaps that saw the same thing can then both win.
    pub failover_loss: bool,
    /// Several processes may use it at the same time. One that is not shared knows when it is opened that
    /// every process before has ended, and [`Record::ends_with_writer`](crate::Record::ends_with_writer) counts.
    pub shared: bool,
    /// It can join the caller's own transaction.
    pub transactions: bool,
    /// The clock that due times are measured by.
    pub clock: ClockSource,
    /// The largest encoded receipt that it takes, in bytes.
    pub record_bytes_max: usize,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            durable: false,
            atomic: false,
            failover_loss: false,
            shared: false,
            transactions: false,
            clock: ClockSource::Store,
            record_bytes_max: 1 << 30,
        }
    }
}

impl Promises {
    /// Sets whether what was answered survives a crash of the process and of the machine.
    pub fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets whether exactly one of two swaps that saw the same thing wins.
    pub fn with_atomic(mut self, atomic: bool) -> Self {
        self.atomic = atomic;
        self
    }

    /// Sets whether a failover may lose what was answered.
    pub fn with_failover_loss(mut self, failover_loss: bool) -> Self {
        self.failover_loss = failover_loss;
        self
    }

    /// Sets whether several processes may use it at the same time.
    pub fn with_shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets whether it can join the caller's own transaction.
    pub fn with_transactions(mut self, transactions: bool) -> Self {
        self.transactions = transactions;
        self
    }

    /// Sets whose clock due times go by.
    pub fn with_clock(mut self, clock: ClockSource) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the largest encoded receipt that it takes, in bytes.
    pub fn with_record_bytes_max(mut self, bytes: usize) -> Self {
        self.record_bytes_max = bytes;
        self
    }
}

/// The clock that a store's due times are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockSource {
    /// Its own: one clock for all its users.
    Store,
    /// That of each process that uses it. They may differ by this much: the engine keeps every claim in the store for
    /// so much longer than its owner counts on it.
    Process {
        /// The difference that is allowed for.
        margin: Duration,
    },
}

/// Facts about a store that make the engine faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hints {
    /// How many batches are worth having in flight at once.
    pub batches_in_flight: usize,
    /// It makes groups of the batches that wait, in a thread or task of its own, and a swap whose future
    /// was polled once continues when that is dropped. The engine then makes no batches and hands each swap over.
    pub batches_internally: bool,
    /// How it finds what is due.
    pub due: DueLookup,
}

impl Default for Hints {
    fn default() -> Self {
        Self { batches_in_flight: 1, batches_internally: false, due: DueLookup::Index }
    }
}

impl Hints {
    /// Sets how many batches are worth having in flight at once.
    pub fn with_batches_in_flight(mut self, batches: usize) -> Self {
        self.batches_in_flight = batches;
        self
    }

    /// Sets whether the store makes batches itself.
    pub fn with_batches_internally(mut self, batches_internally: bool) -> Self {
        self.batches_internally = batches_internally;
        self
    }

    /// Sets how it finds what is due.
    pub fn with_due(mut self, due: DueLookup) -> Self {
        self.due = due;
        self
    }
}

/// How a store finds what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DueLookup {
    /// By an index: a scan costs what is due.
    Index,
    /// By walking over everything: a scan costs what is kept, so sweeps and the looks of workers are made more rarely.
    Walk,
}
