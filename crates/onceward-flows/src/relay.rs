//! The relay: publishes what is in the outbox, and removes what the broker has confirmed.
//!
//! Several relays share the lanes of an outbox by lease and fence. Within an ordering key at most one message is
//! unconfirmed. A relay that was stopped for longer than its lease and goes on may publish what another one has published
//! since: such copies have the same message id, and consumers drop them.

mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Backoff, Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lane::LANES;
use crate::outbox::Outbox;
use crate::parts::Parts;
use crate::postgres::FlowTables;
use crate::postgres::outbox::OutboxRow;
use crate::publisher::{Outgoing, Publisher};
use schedule::Schedule;

/// Lanes are shared in this many groups.
const GROUPS: u32 = 64;
/// Rows of one lane in one read: a lane with many must not fill the memory alone.
const LANE_ROWS_MAX: usize = 200;
/// Everything is read from the start this often.
const RESTART_EVERY: Duration = Duration::from_secs(60);
/// The shortest pause between two looks at the database while messages come.
const POLL_MIN: Duration = Duration::from_millis(5);

/// How a relay works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayOptions {
    /// Most messages of one call of the publisher.
    pub batch_messages_max: usize,
    /// Calls of the publisher at a time.
    pub batches_in_flight_max: usize,
    /// Most messages in memory.
    pub buffered_messages_max: usize,
    /// Longest pause between two looks at the database. Messages that were added in this process are found at once.
    pub poll_max: Duration,
    /// How long other relays wait for one that is gone.
    pub lease: Duration,
    /// How long a key waits after its message was refused.
    pub backoff: Backoff,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            batch_messages_max: 256,
            batches_in_flight_max: 4,
            buffered_messages_max: 4_096,
            poll_max: Duration::from_millis(200),
            lease: Duration::from_secs(10),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
        }
    }
}

/// Publishes the messages of an outbox. Cheap to clone; clones share their counters, and each call of
/// [`run_until`](Self::run_until) is a relay of its own.
#[derive(Clone)]
pub struct Relay {
    tables: FlowTables,
    outbox: Outbox,
    publisher: Arc<dyn Publisher>,
    options: RelayOptions,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    published: AtomicU64,
    failed: AtomicU64,
    reads: AtomicU64,
    takeovers: AtomicU64,
}

/// What the relays of this process have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Messages that the broker has confirmed.
    pub published: u64,
    /// Messages that the broker has refused or not confirmed; each is tried again.
    pub failed: u64,
    /// Looks at the database.
    pub reads: u64,
    /// Groups of lanes taken over from a relay that ended without warning.
    pub takeovers: u64,
}

impl Relay {
    /// A relay from the outbox in this database to a broker.
    pub fn new(tables: FlowTables, outbox: &Outbox, publisher: impl Publisher + 'static) -> Self {
        Self {
            tables,
            outbox: outbox.clone(),
            publisher: Arc::new(publisher),
            options: RelayOptions::default(),
            counters: Arc::default(),
        }
    }

    /// Sets how it works.
    pub fn with_options(mut self, options: RelayOptions) -> Self {
        self.options = options;
        self
    }

    /// What the relays of this process have done so far.
    pub fn counts(&self) -> RelayCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { published, failed, reads, takeovers } = &*self.counters;
        RelayCounts {
            published: read(published),
            failed: read(failed),
            reads: read(reads),
            takeovers: read(takeovers),
        }
    }

    /// Returns when every committed message is published and removed: for tests.
    pub async fn drained(&self) -> Result<()> {
        while !self.tables.is_drained().await? {
            tokio::time::sleep(POLL_MIN).await;
        }
        Ok(())
    }

    /// Publishes until `stop` is ready; then waits for what is in flight and releases its lanes, so that another relay
    /// goes on at once. A database or a broker that fails is tried again, with pauses. Fails only at the start. If the
    /// future is dropped, other relays wait until the lease ends.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<()> {
        let options = &self.options;
        if options.batch_messages_max == 0
            || options.batches_in_flight_max == 0
            || options.buffered_messages_max == 0
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a bound of the relay is 0; it would publish nothing",
            ));
        }
        let parts = Parts::open(self.tables.clone(), "relay".to_owned(), GROUPS, options.lease).await?;
        let mut run = RelayRun {
            relay: self,
            parts,
            schedule: Schedule::default(),
            in_flight: JoinSet::new(),
            surplus: Vec::new(),
            added: self.outbox.added(),
            next_read: Instant::now(),
            poll: POLL_MIN,
            next_restart: Instant::now() + RESTART_EVERY,
        };
        tokio::pin!(stop);
        loop {
            run.renew().await;
            run.remove_and_read().await;
            run.send();
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = run.wait() => {}
            }
        }
        run.end().await;
        Ok(())
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What became of a batch.
type Batch = Vec<(Arc<str>, OutboxRow, Result<()>)>;

/// One relay at work.
struct RelayRun<'a> {
    relay: &'a Relay,
    parts: Parts,
    schedule: Schedule,
    /// A task for each batch, so that it goes on while this relay waits for the database.
    in_flight: JoinSet<Batch>,
    /// Groups of lanes to be released as soon as nothing is in flight.
    surplus: Vec<u32>,
    added: watch::Receiver<()>,
    next_read: Instant,
    poll: Duration,
    next_restart: Instant,
}

impl RelayRun<'_> {
    /// Renews the leases when it is time, and releases what is more than the share of this relay.
    async fn renew(&mut self) {
        if !self.surplus.is_empty() && self.in_flight.is_empty() {
            let surplus = std::mem::take(&mut self.surplus);
            if let Err(error) = self.parts.release(&surplus, |_| 0).await {
                tracing::warn!(%error, "lanes were not released; their lease ends by itself");
            }
        }
        if Instant::now() < self.parts.next_tick() {
            return;
        }
        match self.parts.tick(|_| 0).await {
            Ok(changes) => {
                for gained in changes.gained {
                    if gained.was_lapsed {
                        self.relay.counters.takeovers.fetch_add(1, Ordering::Relaxed);
                    }
                    (0..LANES)
                        .filter(|lane| lane % GROUPS == gained.part)
                        .for_each(|lane| self.schedule.gain(lane));
                    self.next_read = Instant::now();
                }
                let leaves = |lane: u32| {
                    let group = lane % GROUPS;
                    changes.lost.contains(&group) || changes.surplus.contains(&group)
                };
                self.schedule.lose(leaves);
                self.surplus = changes.surplus;
            }
            Err(error) => tracing::warn!(%error, "the relay cannot reach its database, trying again"),
        }
    }

    /// One look at the database, if there is a reason for it.
    async fn remove_and_read(&mut self) {
        let now = Instant::now();
        if now >= self.next_restart {
            self.schedule.restart();
            self.next_restart = now + RESTART_EVERY;
        }
        let options = &self.relay.options;
        if self.schedule.next_due().is_some_and(|due| due <= now) {
            self.next_read = now;
        }
        let space = options.buffered_messages_max.saturating_sub(self.schedule.held());
        let reads = now >= self.next_read && space > 0;
        if !reads && !self.schedule.has_to_remove() {
            return;
        }
        let places = self.schedule.take_to_remove();
        let after = if reads { self.schedule.cursors(now) } else { Vec::new() };
        let limit = space.min(options.batch_messages_max * options.batches_in_flight_max);
        self.relay.counters.reads.fetch_add(u64::from(reads), Ordering::Relaxed);
        match self.relay.tables.remove_and_read(&places, &after, LANE_ROWS_MAX, limit).await {
            Ok(rows) => {
                self.schedule.removed(&places);
                if reads {
                    // More may be there at once; else look again soon while messages come, later when none do.
                    self.poll =
                        if rows.is_empty() { (self.poll * 2).min(options.poll_max) } else { POLL_MIN };
                    let pause = if rows.len() >= limit { Duration::ZERO } else { self.poll };
                    self.next_read = Instant::now() + pause;
                    self.schedule.read(rows);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the relay cannot reach its database, trying again");
                self.schedule.not_removed(places);
                self.poll = options.poll_max;
                self.next_read = Instant::now() + self.poll;
                tokio::time::sleep(POLL_MIN).await;
            }
        }
    }

    /// Hands batches to the publisher: each with at most one message of a key, and only of lanes whose lease is valid.
    fn send(&mut self) {
        let options = &self.relay.options;
        let now = Instant::now();
        while self.in_flight.len() < options.batches_in_flight_max {
            let mut batch = Vec::new();
            while batch.len() < options.batch_messages_max {
                let Some((key, row)) = self.schedule.take(now) else { break };
                if self.parts.held(row.lane % GROUPS, now).is_none() {
                    // Read again after the next renewal.
                    self.schedule.failed(&key, &row, now, |_| Duration::ZERO);
                    continue;
                }
                batch.push((key, row));
            }
            if batch.is_empty() {
                return;
            }
            let publisher = self.relay.publisher.clone();
            self.in_flight.spawn(async move {
                let outgoing: Vec<Outgoing> =
                    batch.iter().map(|(_, row)| Outgoing::new(row.message.clone(), row.position)).collect();
                let mut results = publisher.publish(&outgoing).await;
                // A publisher that gives too few answers has confirmed nothing else.
                let missing =
                    || Err(Error::new(ErrorKind::Damaged, "the publisher gave no answer for a message"));
                results.resize_with(batch.len(), missing);
                batch.into_iter().zip(results).map(|((key, row), result)| (key, row, result)).collect()
            });
        }
    }

    fn finished(&mut self, batch: Batch) {
        let now = Instant::now();
        let backoff = self.relay.options.backoff;
        for (key, row, result) in batch {
            match result {
                Ok(()) => {
                    self.relay.counters.published.fetch_add(1, Ordering::Relaxed);
                    self.schedule.published(&key, &row);
                }
                Err(error) => {
                    self.relay.counters.failed.fetch_add(1, Ordering::Relaxed);
                    let failures = self.schedule.failed(&key, &row, now, |failures| pause(backoff, failures));
                    let (id, topic) = (row.message.id(), row.message.topic());
                    tracing::warn!(id, topic, failures, %error, "a message was not published, trying again");
                }
            }
        }
    }

    /// Waits for the next thing to do.
    async fn wait(&mut self) {
        if self.schedule.has_to_remove() && self.in_flight.is_empty() {
            return;
        }
        let has_space = self.schedule.held() < self.relay.options.buffered_messages_max;
        let mut until = self.parts.next_tick();
        if has_space {
            until = until.min(self.next_read);
            until = self.schedule.next_due().map_or(until, |due| until.min(due));
        }
        tokio::select! {
            Some(batch) = self.in_flight.join_next() => {
                self.finished(batch.expect("a publisher does not panic"));
                while let Some(batch) = self.in_flight.try_join_next() {
                    self.finished(batch.expect("a publisher does not panic"));
                }
            }
            Ok(()) = self.added.changed(), if has_space => self.next_read = Instant::now(),
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Waits for what is in flight, removes what was published, and leaves.
    async fn end(mut self) {
        while let Some(batch) = self.in_flight.join_next().await {
            self.finished(batch.expect("a publisher does not panic"));
        }
        let places = self.schedule.take_to_remove();
        let removed = self.relay.tables.remove_and_read(&places, &[], 0, 0).await;
        let left = match removed {
            Ok(_) => self.parts.leave(|_| 0).await,
            Err(error) => Err(error),
        };
        if let Err(error) = left {
            tracing::warn!(%error, "the relay stopped without its database; what it published last may be published again");
        }
    }
}

/// The pause after this number of failures: doubled each time.
fn pause(backoff: Backoff, failures: u32) -> Duration {
    backoff.min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(backoff.max)
}
