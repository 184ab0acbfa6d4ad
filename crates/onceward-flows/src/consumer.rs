//! The idempotent consumer: the effect of a message, and the receipt that says so, commit together. A message that comes
//! again finds its receipt.
//!
//! ```text
//! source ──▶ queue by ordering key ──▶ transaction: receipt, fence of the partition, sequence of the key, handler
//!   ▲                                       ├─ committed ──▶ the position of the partition moves on
//!   │                                       └─ failed ──▶ tried again after a pause, or a dead letter
//!   └─ after a crash: again from the position; what was handled is recognised by its receipt
//! ```
//!
//! A partition is worked on by one process at a time, under lease and fence. The fence is compared inside every effect's
//! transaction, so that a process that was stopped for longer than its lease has no effect.

mod effect;
mod failure;
mod progress;
mod run;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Backoff, Error, ErrorKind, Onceward, Policy, Result, Transactions, Verdict};
use onceward_stores::sql::SqlTransaction;

pub use failure::{Failure, OnDead};

use crate::dead_letters::DeadLetters;
use crate::message::Message;
use crate::postgres::FlowTables;
use crate::source::Source;

/// The database of a consumer: receipts, effects, and the tables for messages, all in the same one.
#[derive(Clone, Debug)]
pub struct ConsumerDatabase<T> {
    /// The engine over the receipts in this database.
    pub onceward: Onceward,
    /// Transactions of this database.
    pub transactions: T,
    /// The tables for messages in this database.
    pub tables: FlowTables,
}

/// How a consumer works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// Effects at a time, each of another ordering key. Each needs a connection of the transactions.
    pub concurrency: usize,
    /// Messages of a partition that are read and not handled.
    pub partition_messages_max: usize,
    /// How often a message is tried before it is a dead letter.
    pub tries_max: u32,
    /// How long an ordering key waits after a failure.
    pub backoff: Backoff,
    /// What becomes of a message whose tries are used up.
    pub on_dead: OnDead,
    /// Most messages in the sequence of one ordering key. Beyond that the partition waits.
    pub parked_max: usize,
    /// How long other processes wait for one that is gone.
    pub lease: Duration,
    /// How often dead letters are looked for that are to be tried again.
    pub retry_poll: Duration,
    /// The retention of receipts, and nothing else of it: at least the time in which a message can come again.
    pub policy: Policy,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            concurrency: 8,
            partition_messages_max: 256,
            tries_max: 5,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            on_dead: OnDead::default(),
            parked_max: 10_000,
            lease: Duration::from_secs(15),
            retry_poll: Duration::from_millis(500),
            policy: Policy::queue(),
        }
    }
}

/// A message and what is known of it, as a handler gets it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The message.
    pub message: Arc<Message>,
    /// Tries that have failed before.
    pub tries: u32,
}

/// Handles the messages of a source, each once. Cheap to clone; clones share their counters.
#[derive(Clone)]
pub struct Consumer<T> {
    name: Arc<str>,
    source: Arc<dyn Source>,
    database: ConsumerDatabase<T>,
    options: ConsumerOptions,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    handled: AtomicU64,
    duplicates: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    parked: AtomicU64,
    retried: AtomicU64,
    fenced_off: AtomicU64,
    takeovers: AtomicU64,
}

/// What the consumers of this process have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerCounts {
    /// Messages whose effect was committed.
    pub handled: u64,
    /// Messages that were handled, discarded or recorded as dead before.
    pub duplicates: u64,
    /// Tries that have failed.
    pub failed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Messages that were queued behind a dead letter.
    pub parked: u64,
    /// Dead letters, and messages behind them, whose effect was committed after all.
    pub retried: u64,
    /// Effects that were refused because the partition has another owner.
    pub fenced_off: u64,
    /// Partitions taken over from a process that ended without warning.
    pub takeovers: u64,
}

impl<T> Consumer<T>
where
    T: Transactions,
    T::Tx: SqlTransaction,
{
    /// A consumer of a source. Its name is a part of the idempotency key of every message: another name handles everything
    /// again.
    pub fn new(name: &str, source: impl Source + 'static, database: ConsumerDatabase<T>) -> Self {
        let (source, options) = (Arc::new(source), ConsumerOptions::default());
        Self { name: name.into(), source, database, options, counters: Arc::default() }
    }

    /// Sets how it works.
    pub fn with_options(mut self, options: ConsumerOptions) -> Self {
        self.options = options;
        self
    }

    /// What the consumers of this process have done so far.
    pub fn counts(&self) -> ConsumerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.counters;
        ConsumerCounts {
            handled: read(&counters.handled),
            duplicates: read(&counters.duplicates),
            failed: read(&counters.failed),
            dead: read(&counters.dead),
            parked: read(&counters.parked),
            retried: read(&counters.retried),
            fenced_off: read(&counters.fenced_off),
            takeovers: read(&counters.takeovers),
        }
    }

    /// Its dead letters.
    pub fn dead_letters(&self) -> DeadLetters {
        let ConsumerDatabase { tables, onceward, .. } = &self.database;
        DeadLetters::new(tables.clone(), onceward.clone(), self.source.name(), &self.name)
    }

    /// Handles messages until `stop` is ready; then finishes what is in flight and releases its partitions, so that another
    /// process goes on at once. Fails only at the start: a source that does not fit, options that contradict each other.
    ///
    /// The handler writes through `tx`, and what it writes commits together with the receipt. It may run more than once
    /// for a message; of all executions one is committed. A panic in it is a transient failure.
    ///
    /// If the future is dropped, open effects are rolled back, and other processes wait until the lease ends.
    pub async fn handle_until<H, W>(&self, stop: impl Future<Output = ()>, handler: H) -> Result<()>
    where
        H: Fn(Received, T::Tx) -> W,
        W: Future<Output = Result<(), Failure>>,
    {
        self.check().await?;
        run::run(self, &handler, stop).await
    }

    async fn check(&self) -> Result<()> {
        let invalid = |detail: &'static str| Err(Error::new(ErrorKind::Invalid, detail));
        let options = &self.options;
        // Both are parts of the idempotency key of every message.
        onceward::Id::new(self.source.name(), &self.name, "message")?;
        if options.concurrency == 0 || options.partition_messages_max == 0 || options.tries_max == 0 {
            return invalid("a bound of the consumer is 0; it would handle nothing");
        }
        if options.parked_max == 0 {
            return invalid(
                "no message may wait behind a dead letter (parked_max is 0); use OnDead::Skip for that",
            );
        }
        self.source.check(options.policy.retention(Verdict::Succeeded).duration()).await
    }

    fn flow(&self) -> String {
        format!("consumer:{}:{}", self.source.name(), self.name)
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
