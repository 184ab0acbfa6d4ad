//! The relay: publishes what is in the outbox, and removes what the broker has confirmed.
//!
//! Several relays share the lanes of an outbox by lease and fence. Within an ordering key at most one message is
//! unconfirmed. A relay that was stopped for longer than its lease and continues may publish what another one has
//! published since: such copies have the same message id, and consumers drop them.

mod outage;
mod schedule;
#[cfg(test)]
mod simulation;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::{Backoff, Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lane::LANES;
use crate::outbox::{AddedLanes, Outbox};
use crate::parts::Parts;
use crate::publisher::{Outgoing, Publisher};
use crate::tables::{FlowTables, OutboxRow};
use outage::Outage;
use schedule::{RESTART_SHARES, Reads, Schedule};

/// The name of what relays share.
pub(crate) const FLOW: &str = "relay";
/// Lanes are shared in this many groups.
const GROUPS: u32 = 64;
/// A share of the lanes is read from the start this often, and so everything once a minute.
const RESTART_EVERY: Duration = Duration::from_secs(1);
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
    /// How long one call of the publisher may take. Its messages are then published again, perhaps a second time: consumers
    /// recognise them by their ids.
    pub publish_timeout: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            batch_messages_max: 256,
            batches_in_flight_max: 4,
            buffered_messages_max: 4_096,
            poll_max: Duration::from_millis(40),
            lease: Duration::from_secs(10),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
            publish_timeout: Duration::from_secs(30),
        }
    }
}

impl RelayOptions {
    /// Sets the most messages of one call of the publisher.
    pub fn with_batch_messages_max(mut self, batch_messages_max: usize) -> Self {
        self.batch_messages_max = batch_messages_max;
        self
    }

    /// Sets the most calls of the publisher at a time.
    pub fn with_batches_in_flight_max(mut self, batches_in_flight_max: usize) -> Self {
        self.batches_in_flight_max = batches_in_flight_max;
        self
    }

    /// Sets the most messages in memory.
    pub fn with_buffered_messages_max(mut self, buffered_messages_max: usize) -> Self {
        self.buffered_messages_max = buffered_messages_max;
        self
    }

    /// Sets the longest pause between two looks at the database.
    pub fn with_poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = poll_max;
        self
    }

    /// Sets how long other relays wait for one that is gone.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long a key waits after its message was refused.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets how long one call of the publisher may take.
    pub fn with_publish_timeout(mut self, publish_timeout: Duration) -> Self {
        self.publish_timeout = publish_timeout;
        self
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

/// Counts of this process's relays.
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

    /// Returns the counts of this process's relays.
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
    /// continues at once. A database or a broker that fails is tried again, with pauses. Fails only at the start. If
    /// the future is dropped, other relays wait until the lease ends.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<()> {
        let options = &self.options;
        if options.batch_messages_max == 0
            || options.batches_in_flight_max == 0
            || options.buffered_messages_max == 0
            || options.publish_timeout.is_zero()
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a bound of the relay is 0; it would publish nothing",
            ));
        }
        if self.publisher.answers_within().is_some_and(|at_most| at_most >= options.publish_timeout) {
            let detail = format!(
                "publish_timeout is {:?}, and the publisher may take as long for one message; make it longer",
                options.publish_timeout
            );
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        let parts = Parts::open(self.tables.clone(), FLOW.to_owned(), GROUPS, options.lease).await?;
        parts.use_outbox(&format!("a relay to {}", self.publisher.target())).await?;
        let (answers, answered) = mpsc::unbounded_channel();
        let mut run = RelayRun {
            relay: self,
            parts,
            schedule: Schedule::new(options.buffered_messages_max),
            outage: Outage::default(),
            batches: JoinSet::new(),
            looks: JoinSet::new(),
            in_flight: 0,
            answers,
            answered,
            surplus: Vec::new(),
            added: self.outbox.listen(),
            next_read: Instant::now(),
            poll: POLL_MIN,
            next_restart: Instant::now() + RESTART_EVERY,
            restarts: 0,
        };
        tokio::pin!(stop);
        loop {
            run.renew().await;
            run.begin_look();
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

/// What became of a message.
type Answer = (Arc<str>, OutboxRow, Result<()>);

/// A look at the database: it removes what was published, and reads on.
struct Look {
    places: Vec<(u32, i64)>,
    reads: Reads,
    /// Whether it reads all lanes.
    reads_all: bool,
    limit: usize,
    rows: Result<Vec<OutboxRow>>,
}

/// One relay at work.
struct RelayRun<'a> {
    relay: &'a Relay,
    parts: Parts,
    schedule: Schedule,
    outage: Outage,
    /// A task for each batch, so that it continues while this relay waits for the database.
    batches: JoinSet<()>,
    /// The look at the database that is under way: messages are sent meanwhile.
    looks: JoinSet<Look>,
    /// Messages without an answer that was taken in.
    in_flight: usize,
    answers: mpsc::UnboundedSender<Answer>,
    answered: mpsc::UnboundedReceiver<Answer>,
    /// Groups of lanes to be released as soon as nothing is in flight.
    surplus: Vec<u32>,
    /// Lanes that this process has added messages to: looked at without the others.
    added: AddedLanes,
    next_read: Instant,
    poll: Duration,
    next_restart: Instant,
    restarts: u32,
}

impl RelayRun<'_> {
    /// Renews the leases when it is time, and releases what is more than the share of this relay.
    async fn renew(&mut self) {
        // What was published is removed before another relay reads it.
        let is_idle = self.in_flight == 0 && self.looks.is_empty() && !self.schedule.has_to_remove();
        if !self.surplus.is_empty() && is_idle {
            let surplus = std::mem::take(&mut self.surplus);
            if let Err(error) = self.parts.release(&surplus, |_| 0).await {
                tracing::warn!(%error, "lanes were not released; their lease will expire");
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
                // What was to be released is, also if it is no longer surplus: it has left the schedule.
                self.surplus.retain(|group| !changes.lost.contains(group));
                for group in changes.surplus {
                    if !self.surplus.contains(&group) {
                        self.surplus.push(group);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the relay cannot reach its database, trying again"),
        }
    }

    /// Begins a look at the database, if there is a reason for it.
    fn begin_look(&mut self) {
        let now = Instant::now();
        if !self.looks.is_empty() {
            return;
        }
        if now >= self.next_restart {
            self.schedule.restart(self.restarts);
            self.restarts = (self.restarts + 1) % RESTART_SHARES;
            self.next_restart = now + RESTART_EVERY;
        }
        let options = &self.relay.options;
        if self.schedule.has_space() || self.schedule.next_due().is_some_and(|due| due <= now) {
            self.next_read = now;
        }
        let space = options.buffered_messages_max.saturating_sub(self.schedule.held());
        let reads_all = now >= self.next_read && space > 0;
        // A look at all lanes has these, too.
        let added = if space > 0 { self.added.take() } else { Vec::new() };
        let reads = if reads_all {
            self.schedule.reads(now)
        } else if added.is_empty() {
            Reads::default()
        } else {
            self.schedule.reads_of(&added)
        };
        if reads.after.is_empty() && !self.schedule.has_to_remove() {
            return;
        }
        let places = self.schedule.take_to_remove();
        let limit = space.min(options.batch_messages_max * options.batches_in_flight_max);
        self.relay.counters.reads.fetch_add(u64::from(!reads.after.is_empty()), Ordering::Relaxed);
        let tables = self.relay.tables.clone();
        self.looks.spawn(async move {
            let rows = tables.remove_and_read(&places, &reads.after, reads.per_lane, limit).await;
            Look { places, reads, reads_all, limit, rows }
        });
    }

    /// Takes in what was seen.
    async fn finish_look(&mut self, look: Look) {
        let Look { places, reads, reads_all, limit, rows } = look;
        let options = &self.relay.options;
        match rows {
            Ok(rows) => {
                self.schedule.removed(&places);
                if reads_all {
                    // More may be there at once; else look again soon while messages come, later when none do.
                    self.poll =
                        if rows.is_empty() { (self.poll * 2).min(options.poll_max) } else { POLL_MIN };
                    let pause = if rows.len() >= limit { Duration::ZERO } else { self.poll };
                    self.next_read = Instant::now() + pause;
                } else if !reads.after.is_empty() && rows.len() >= limit.min(reads.per_lane) {
                    // A bound was reached, or may have been.
                    self.next_read = Instant::now();
                }
                self.schedule.read(rows);
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
        // Another relay waits for these lanes, and gets them when nothing is in flight.
        if !self.surplus.is_empty() {
            return;
        }
        while let Some(ended) = self.batches.try_join_next() {
            ended.expect("a publisher does not panic");
        }
        let options = &self.relay.options;
        let now = Instant::now();
        let length_max = options.batch_messages_max.min(self.relay.publisher.batch_max()).max(1);
        while self.batches.len() < options.batches_in_flight_max && self.outage.may_send(now, self.in_flight)
        {
            let mut batch = Vec::new();
            while batch.len() < length_max {
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
            self.in_flight += batch.len();
            self.outage.sent(now, options.backoff);
            let (publisher, answers) = (self.relay.publisher.clone(), self.answers.clone());
            self.batches.spawn(publish(publisher, batch, options.publish_timeout, answers));
        }
    }

    fn finished(&mut self, (key, row, result): Answer) {
        self.in_flight -= 1;
        match result {
            Ok(()) => {
                self.relay.counters.published.fetch_add(1, Ordering::Relaxed);
                self.schedule.published(&key, &row);
                if self.outage.succeeded() {
                    tracing::info!("the broker takes messages again");
                }
            }
            Err(error) => {
                self.relay.counters.failed.fetch_add(1, Ordering::Relaxed);
                let backoff = self.relay.options.backoff;
                let failures =
                    self.schedule.failed(&key, &row, Instant::now(), |failures| pause(backoff, failures));
                let (id, topic) = (row.message.id(), row.message.topic());
                if self.outage.failed(self.schedule.failing()) {
                    tracing::warn!(id, %error, "the broker takes no messages; trying again, a few at a time");
                } else if self.outage.is_on() {
                    tracing::debug!(id, topic, failures, %error, "a message was not published, trying again");
                } else {
                    tracing::warn!(id, topic, failures, %error, "a message was not published, trying again");
                }
            }
        }
    }

    fn finish_answered(&mut self) {
        while let Ok(answer) = self.answered.try_recv() {
            self.finished(answer);
        }
    }

    /// Waits for the next thing to do.
    async fn wait(&mut self) {
        let may_look = self.looks.is_empty();
        let has_space = may_look && self.schedule.held() < self.relay.options.buffered_messages_max;
        if may_look && self.schedule.has_to_remove() && self.in_flight == 0
            || has_space && self.schedule.has_space()
        {
            return;
        }
        let mut until = self.parts.next_tick();
        if has_space {
            until = until.min(self.next_read);
            until = self.schedule.next_due().map_or(until, |due| until.min(due));
        }
        if self.in_flight == 0 {
            until = self.outage.next_send().map_or(until, |next| until.min(next));
        }
        tokio::select! {
            Some(answer) = self.answered.recv() => {
                self.finished(answer);
                self.finish_answered();
            }
            Some(look) = self.looks.join_next() => {
                self.finish_look(look.expect("a look does not panic")).await;
            }
            // A place for another batch.
            Some(ended) = self.batches.join_next() => ended.expect("a publisher does not panic"),
            () = self.added.wait(), if has_space => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Waits for what is in flight, removes what was published, and leaves. Leases are renewed meanwhile: no other relay
    /// publishes the successors of a message that is in flight here.
    async fn end(mut self) {
        self.parts.take_no_more();
        while self.in_flight > 0 {
            tokio::select! {
                Some(answer) = self.answered.recv() => self.finished(answer),
                () = tokio::time::sleep_until(self.parts.next_tick()) => {
                    if let Err(error) = self.parts.tick(|_| 0).await {
                        tracing::warn!(%error, "the relay cannot reach its database while it stops");
                    }
                }
            }
        }
        while let Some(look) = self.looks.join_next().await {
            self.finish_look(look.expect("a look does not panic")).await;
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

/// Publishes a batch, and gives one answer for each message, at the latest when the time is over.
async fn publish(
    publisher: Arc<dyn Publisher>,
    batch: Vec<(Arc<str>, OutboxRow)>,
    at_most: Duration,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let outgoing: Vec<Outgoing> =
        batch.iter().map(|(_, row)| Outgoing::new(row.message.clone(), row.position)).collect();
    let open: Mutex<Vec<_>> = Mutex::new(batch.into_iter().map(Some).collect());
    let open = || open.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = |place: usize, result: Result<()>| {
        let found = open().get_mut(place).and_then(Option::take);
        if let Some((key, row)) = found {
            let _ = answers.send((key, row, result));
        }
    };
    // A client of a broker that was killed may wait for an answer that never comes.
    let ended = tokio::time::timeout(at_most, publisher.publish_each(&outgoing, &answered)).await;
    let error = match ended {
        Err(_) => {
            let detail = format!("the broker did not answer within {at_most:?}");
            Error::new(ErrorKind::Unavailable, detail).maybe_applied()
        }
        // A publisher that gives too few answers has confirmed nothing else.
        Ok(()) => Error::new(ErrorKind::Damaged, "the publisher gave no answer for a message"),
    };
    for place in 0..outgoing.len() {
        answered(place, Err(error.clone()));
    }
}

/// The pause after this number of failures: doubled each time.
fn pause(backoff: Backoff, failures: u32) -> Duration {
    backoff.min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(backoff.max)
}
