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

mod admission;
mod batch;
mod effect;
pub(crate) mod failure;
mod in_flight;
mod numbers;
mod open_part;
pub(crate) mod progress;
mod reading;
mod run;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Ask, Backoff, Error, ErrorKind, Id, Onceward, Policy, Result, Verdict};
use onceward_stores::sql::SqlTransactions;

pub use failure::{Failure, OnDead};

use crate::dead_letters::DeadLetters;
use crate::message::Message;
use crate::source::{Delivery, Source};
use crate::tables::{FlowTables, scope};
use crate::versions::{VersionRule, Versions};

/// Most messages of one transaction: each is a bit of a number in the statement that admits them.
pub const BATCH_MESSAGES_MAX: usize = 63;

/// The database of a consumer: receipts, effects, and the tables for messages, all in the same one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerDatabase<T> {
    /// The engine over the receipts in this database.
    pub onceward: Onceward,
    /// Transactions of this database.
    pub transactions: T,
    /// The tables for messages in this database.
    pub tables: FlowTables,
}

impl<T> ConsumerDatabase<T> {
    /// From the engine, the transactions and the tables of one database.
    pub fn new(onceward: Onceward, transactions: T, tables: FlowTables) -> Self {
        Self { onceward, transactions, tables }
    }
}

/// How a consumer works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// Effects at a time, each of another ordering key. Each needs a connection of the transactions.
    pub concurrency: usize,
    /// Most messages of one transaction, for handlers of batches: at most [`BATCH_MESSAGES_MAX`].
    pub batch_max: usize,
    /// Messages of a partition that are read and not handled.
    pub partition_messages_max: usize,
    /// How often a message is tried before it is a dead letter.
    pub tries_max: u32,
    /// How long an ordering key waits after a failure.
    pub backoff: Backoff,
    /// The treatment of a message whose tries are used up.
    pub on_dead: OnDead,
    /// Most messages in the sequence of one ordering key. Beyond that the partition waits.
    pub parked_max: usize,
    /// How long other processes wait for one that is gone.
    pub lease: Duration,
    /// How often dead letters are looked for that are to be tried again.
    pub retry_poll: Duration,
    /// The topics that the handler knows; nothing there: all. A message of another one becomes a dead letter.
    pub topics: Option<Vec<String>>,
    /// What becomes of a message whose publisher has given it no id.
    pub missing_id: MissingId,
    /// What [`Consumer::versions`] do with a gap.
    pub versions: VersionRule,
    /// The retention of receipts, and nothing else of it: at least the time in which a message can come again.
    pub policy: Policy,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            concurrency: 8,
            batch_max: 32,
            partition_messages_max: 256,
            tries_max: 5,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            on_dead: OnDead::default(),
            parked_max: 10_000,
            lease: Duration::from_secs(15),
            retry_poll: Duration::from_millis(500),
            topics: None,
            missing_id: MissingId::default(),
            versions: VersionRule::default(),
            policy: Policy::queue(),
        }
    }
}

impl ConsumerOptions {
    /// Sets how many effects run at a time.
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets the most messages of one transaction, for handlers of batches.
    pub fn with_batch_max(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }

    /// Sets the most messages of a partition that are read and not handled.
    pub fn with_partition_messages_max(mut self, partition_messages_max: usize) -> Self {
        self.partition_messages_max = partition_messages_max;
        self
    }

    /// Sets how often a message is tried before it is a dead letter.
    pub fn with_tries_max(mut self, tries_max: u32) -> Self {
        self.tries_max = tries_max;
        self
    }

    /// Sets how long an ordering key waits after a failure.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets what becomes of a message whose tries are used up.
    pub fn with_on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// Sets the most messages in the sequence of one ordering key.
    pub fn with_parked_max(mut self, parked_max: usize) -> Self {
        self.parked_max = parked_max;
        self
    }

    /// Sets how long other processes wait for one that is gone.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how often dead letters are looked for that are to be tried again.
    pub fn with_retry_poll(mut self, retry_poll: Duration) -> Self {
        self.retry_poll = retry_poll;
        self
    }

    /// Sets the retention of receipts.
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets what a gap between versions does.
    pub fn with_versions(mut self, versions: VersionRule) -> Self {
        self.versions = versions;
        self
    }

    /// Sets what becomes of a message whose publisher has given it no id.
    pub fn with_missing_id(mut self, missing_id: MissingId) -> Self {
        self.missing_id = missing_id;
        self
    }

    /// Sets the topics that the handler knows: a message of another one becomes a dead letter.
    pub fn with_topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.topics = Some(topics.into_iter().map(Into::into).collect());
        self
    }
}

/// The treatment of a message whose publisher has given it no id. One whose id is malformed is a dead letter in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingId {
    /// Its place in the source is its id. That is the same whenever it is read; but a message that its publisher has sent
    /// twice is two messages.
    #[default]
    Place,
    /// It is a dead letter, under its place in the source: for topics whose publishers must all give ids. A retry handles
    /// it under that id.
    Dead,
}

/// A message and what is known of it, as a handler gets it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The message.
    pub message: Arc<Message>,
    /// Tries that have failed before, also in other processes.
    pub tries: u32,
}

/// Handles the messages of a source, each once. Cheap to clone; clones share their counters.
#[derive(Clone)]
pub struct Consumer<T> {
    name: Arc<str>,
    /// Its name in the tables.
    scope: Arc<str>,
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
    blocked: AtomicU64,
    batches: AtomicU64,
    batches_repeated: AtomicU64,
    out_of_order: AtomicU64,
}

/// Counts of this process's consumers.
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
    /// Times that a message found [`parked_max`](ConsumerOptions::parked_max) others before it: its partition waits until
    /// somebody retries or discards them. For an alert.
    pub blocked: u64,
    /// Transactions that have handled several messages.
    pub batches: u64,
    /// Batches that failed: their messages were tried one by one.
    pub batches_repeated: u64,
    /// New messages (without a receipt) that came from the source behind one of their ordering key with a higher number: the
    /// order was lost before the consumer, by the broker or by another publisher. They are handled as any other. Noticed by the
    /// number that relays publish with each message, among those that this process has read since it has the partition.
    pub out_of_order: u64,
}

impl<T> Consumer<T>
where
    T: SqlTransactions,
{
    /// A consumer of a source. Its name is a part of the idempotency key of every message: another name handles everything
    /// again.
    pub fn new(name: &str, source: impl Source + 'static, database: ConsumerDatabase<T>) -> Self {
        let scope = scope(source.name(), name).into();
        let (source, options) = (Arc::new(source), ConsumerOptions::default());
        Self { name: name.into(), scope, source, database, options, counters: Arc::default() }
    }

    /// Sets how it works.
    pub fn with_options(mut self, options: ConsumerOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the counts of this process's consumers.
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
            blocked: read(&counters.blocked),
            batches: read(&counters.batches),
            batches_repeated: read(&counters.batches_repeated),
            out_of_order: read(&counters.out_of_order),
        }
    }

    /// The versions of its entities, for the handler, with the rule of its options.
    pub fn versions(&self) -> Versions {
        Versions::new(self.scope.clone(), self.options.versions.clone())
    }

    /// Its dead letters.
    pub fn dead_letters(&self) -> DeadLetters {
        let ConsumerDatabase { tables, onceward, .. } = &self.database;
        DeadLetters::new(tables.clone(), onceward.clone(), self.source.name(), &self.name)
    }

    /// Handles messages until `stop` is ready; then finishes what is in flight and releases its partitions, so that another
    /// process continues at once. Fails only at the start: a source that does not fit, options that contradict each
    /// other.
    ///
    /// The handler writes through `tx`, and what it writes commits together with the receipt. It may run more than once
    /// for a message; of all executions one is committed. A panic in it is a transient failure.
    ///
    /// If the future is dropped, open effects are rolled back, and other processes wait until the lease ends. It can be
    /// spawned as a task if `stop` and the handler, with its futures, can be sent to another thread.
    pub async fn handle_until<H, W>(&self, stop: impl Future<Output = ()>, handler: H) -> Result<()>
    where
        H: Fn(Received, T::Tx) -> W,
        W: Future<Output = Result<(), Failure>>,
    {
        self.check().await?;
        let alone =
            |mut one: Vec<Received>, tx: T::Tx| handler(one.pop().expect("a batch has a message"), tx);
        run::run(self, &alone, 1, stop).await
    }

    /// The same with a handler of several messages at a time: they are handled in one transaction, with all of their
    /// receipts. For effects that are cheaper together.
    ///
    /// A batch is at most [`batch_max`](ConsumerOptions::batch_max) messages of one partition that wait; none is waited
    /// for. Those of an ordering key are in their order, and all before them are handled: several of a key can be in one
    /// batch, because they commit together, and because one that is left out takes its successors with it. Messages that
    /// were handled before are left out, and so is one that is malformed, whose key has dead letters, that was tried
    /// before, or that may have ended a process: each of these is handled by itself.
    ///
    /// If the handler fails or panics, everything is rolled back, and the handler is given the same messages one by one.
    /// Nothing is recorded of the failure of a batch: only a message that fails by itself is charged a try.
    pub async fn handle_batches_until<H, W>(&self, stop: impl Future<Output = ()>, handler: H) -> Result<()>
    where
        H: Fn(Vec<Received>, T::Tx) -> W,
        W: Future<Output = Result<(), Failure>>,
    {
        self.check().await?;
        run::run(self, &handler, self.options.batch_max, stop).await
    }

    async fn check(&self) -> Result<()> {
        let invalid = |detail: &'static str| Err(Error::new(ErrorKind::Invalid, detail));
        let options = &self.options;
        // Both are parts of the idempotency key of every message.
        Id::new(self.source.name(), &self.name, "message")?;
        if options.concurrency == 0 || options.partition_messages_max == 0 || options.tries_max == 0 {
            return invalid("a bound of the consumer is 0; it would handle nothing");
        }
        if options.batch_max == 0 || options.batch_max > BATCH_MESSAGES_MAX {
            return invalid("batch_max is 1 to 63 messages");
        }
        if self.source.name().contains('/') {
            return invalid("the name of a source has no `/`: it divides source and consumer in the tables");
        }
        if options.parked_max == 0 {
            return invalid(
                "no message may wait behind a dead letter (parked_max is 0); use OnDead::Skip for that",
            );
        }
        self.source.check(options.policy.retention(Verdict::Succeeded).duration()).await
    }

    /// Why a message cannot be handled as it arrived.
    fn fault_of(&self, delivery: &Delivery) -> Option<String> {
        let has_none = delivery.has_derived_id && self.options.missing_id == MissingId::Dead;
        let missing = has_none.then(|| {
            let place = delivery.message.id();
            format!("its publisher has given it no message id; a retry handles it as `{place}`")
        });
        delivery.fault.clone().or(missing).or_else(|| self.unknown_topic(&delivery.message))
    }

    /// Why a message on a topic without a handler cannot be handled.
    fn unknown_topic(&self, message: &Message) -> Option<String> {
        let topic = message.topic();
        let is_known = |topics: &Vec<String>| topics.iter().any(|known| known == topic);
        let unknown = !self.options.topics.as_ref().is_none_or(is_known);
        unknown.then(|| {
            format!("no handler for the topic `{topic}`; add it to the consumer's topics, then retry")
        })
    }

    /// The intent to handle a message.
    fn id_of(&self, message: &Message) -> Result<Id> {
        Id::new(self.source.name(), &self.name, message.id())
    }

    fn ask(&self, id: Id, message: &Message) -> Ask {
        Ask::new(id, message.fingerprint(), self.options.policy.clone())
    }

    fn flow(&self) -> String {
        format!("consumer:{}", self.scope)
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
