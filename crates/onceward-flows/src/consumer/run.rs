//! A consumer at work: partitions, readers, the queue, effects in flight.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use onceward::{Result, Transactions};
use onceward_stores::sql::SqlTransaction;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::effect::{Effect, End, Item, Origin};
use super::progress::Progress;
use super::{Consumer, Failure, Received};
use crate::key_queue::KeyQueue;
use crate::lane::lane_of;
use crate::parts::{GainedPart, Parts};
use crate::source::{Delivery, HandledMessage, Source};

/// Dead letters that are taken up at a time.
const RETRIES_MAX: i64 = 200;
/// A source that cannot be read is tried again after this.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// A message, and what it occupies until it is handled.
struct Queued {
    item: Item,
    permit: Option<OwnedSemaphorePermit>,
    /// Times that it was tried in this process since it last went well: for the pause.
    failures: u32,
}

/// From a reader: the fence tells a message of a partition that was lost and gained again meanwhile.
struct Arrived {
    part: u32,
    fence: i64,
    delivery: Delivery,
    permit: OwnedSemaphorePermit,
}

/// A partition that this process works on.
struct OpenPart {
    fence: i64,
    reader: JoinHandle<()>,
    permits: Arc<Semaphore>,
    progress: Progress,
    handled: Vec<HandledMessage>,
    in_flight: usize,
    /// Messages that may have been in flight when the former owner ended without warning.
    suspects_left: usize,
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

type Ended = (Arc<str>, Queued, End);

/// The effects in flight. They make progress only while they are polled, and they hold connections and locks: so nothing
/// else is awaited without polling them beside it, or it could wait for what they hold.
#[derive(Default)]
struct InFlight<'a> {
    running: FuturesUnordered<Pin<Box<dyn Future<Output = Ended> + 'a>>>,
    ended: VecDeque<Ended>,
}

impl InFlight<'_> {
    fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// The next one that has ended; none if nothing is in flight.
    async fn next(&mut self) -> Option<Ended> {
        match self.ended.pop_front() {
            Some(ended) => Some(ended),
            None => self.running.next().await,
        }
    }

    /// Awaits something else, and polls the effects beside it.
    async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                output = &mut other => return output,
                Some(ended) = self.running.next() => self.ended.push_back(ended),
            }
        }
    }
}

struct Run<'a, T, H> {
    consumer: &'a Consumer<T>,
    flow: &'a str,
    handler: &'a H,
    parts: Parts,
    open: HashMap<u32, OpenPart>,
    /// More than the share of this process: released as soon as nothing of them is in flight.
    leaving: HashMap<u32, OpenPart>,
    queue: KeyQueue<Queued>,
    in_flight: InFlight<'a>,
    arrivals: mpsc::UnboundedSender<Arrived>,
    retrying: HashSet<String>,
    next_retry_poll: Instant,
}

pub(super) async fn run<T, H, W>(
    consumer: &Consumer<T>,
    handler: &H,
    stop: impl Future<Output = ()>,
) -> Result<()>
where
    T: Transactions,
    T::Tx: SqlTransaction,
    H: Fn(Received, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    let flow = consumer.flow();
    let (tables, lease) = (consumer.database.tables.clone(), consumer.options.lease);
    tables.sweep_tries().await?;
    let parts = Parts::open(tables, flow.clone(), consumer.source.partitions(), lease).await?;
    let (arrivals, mut arrived) = mpsc::unbounded_channel();
    let mut run = Run {
        consumer,
        flow: &flow,
        handler,
        parts,
        open: HashMap::new(),
        leaving: HashMap::new(),
        queue: KeyQueue::default(),
        in_flight: InFlight::default(),
        arrivals,
        retrying: HashSet::new(),
        next_retry_poll: Instant::now(),
    };
    tokio::pin!(stop);
    loop {
        run.renew().await;
        run.find_retries().await;
        run.begin();
        let until = run.next_event();
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some((key, queued, end)) = run.in_flight.next() => {
                run.ended(&key, queued, end);
                while let Some(Some((key, queued, end))) = futures_util::FutureExt::now_or_never(run.in_flight.next()) {
                    run.ended(&key, queued, end);
                }
                run.report_handled().await;
            }
            Some(message) = arrived.recv() => {
                run.arrived(message);
                while let Ok(message) = arrived.try_recv() {
                    run.arrived(message);
                }
            }
            () = tokio::time::sleep_until(until) => {}
        }
    }
    run.end().await;
    Ok(())
}

impl<'a, T, H, W> Run<'a, T, H>
where
    T: Transactions,
    T::Tx: SqlTransaction,
    H: Fn(Received, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>> + 'a,
{
    /// Renews the leases when it is time; opens and closes partitions.
    async fn renew(&mut self) {
        let idle: Vec<u32> =
            self.leaving.iter().filter(|(_, part)| part.in_flight == 0).map(|(part, _)| *part).collect();
        if !idle.is_empty() {
            let positions = positions(&self.leaving);
            let releasing = self.parts.release(&idle, |part| positions.get(&part).copied().unwrap_or(0));
            let released = self.in_flight.beside(releasing).await;
            if let Err(error) = released {
                tracing::warn!(%error, "partitions were not released; their lease ends by itself");
            }
            self.leaving.retain(|part, _| !idle.contains(part));
        }
        if Instant::now() < self.parts.next_tick() {
            return;
        }
        let mut positions = positions(&self.open);
        positions.extend(self::positions(&self.leaving));
        let ticking = self.parts.tick(|part| positions.get(&part).copied().unwrap_or(0));
        match self.in_flight.beside(ticking).await {
            Err(error) => tracing::warn!(%error, "the consumer cannot reach its database, trying again"),
            Ok(changes) => {
                for part in changes.lost {
                    self.close(part);
                    self.leaving.remove(&part);
                }
                for part in changes.surplus {
                    if let Some(open) = self.close(part) {
                        self.leaving.insert(part, open);
                    }
                }
                for gained in changes.gained {
                    self.close(gained.part);
                    self.open(gained);
                }
            }
        }
    }

    /// Stops reading a partition, and forgets what is queued of it. What is in flight ends, or is fenced off.
    fn close(&mut self, part: u32) -> Option<OpenPart> {
        let open = self.open.remove(&part)?;
        open.reader.abort();
        let retrying = &mut self.retrying;
        self.queue.remove(|queued| {
            let is_of_part = queued.item.part == part;
            if is_of_part {
                retrying.remove(queued.item.message.id());
            }
            is_of_part
        });
        Some(open)
    }

    fn open(&mut self, gained: GainedPart) {
        let messages_max = self.consumer.options.partition_messages_max;
        if gained.was_lapsed {
            self.consumer.counters.takeovers.fetch_add(1, Ordering::Relaxed);
        }
        // After an unclean end, whatever was in flight is among the first ones that are not handled; they are taken one
        // at a time, so that a message that ends its process is told from its neighbours.
        let permits = Arc::new(Semaphore::new(if gained.was_lapsed { 1 } else { messages_max }));
        let reader = Reading {
            source: self.consumer.source.clone(),
            part: gained.part,
            fence: gained.fence,
            permits: permits.clone(),
            arrivals: self.arrivals.clone(),
        };
        let open = OpenPart {
            fence: gained.fence,
            reader: tokio::spawn(reader.read(gained.position)),
            permits,
            progress: Progress::after(gained.position),
            handled: Vec::new(),
            in_flight: 0,
            suspects_left: if gained.was_lapsed { messages_max } else { 0 },
        };
        self.open.insert(gained.part, open);
        self.next_retry_poll = Instant::now();
    }

    fn arrived(&mut self, arrived: Arrived) {
        let Arrived { part, fence, delivery, permit } = arrived;
        let Some(open) = self.open.get_mut(&part).filter(|open| open.fence == fence) else { return };
        open.progress.read(delivery.position);
        let item = Item {
            part,
            fence,
            origin: Origin::Source { position: delivery.position },
            fault: delivery.fault,
            is_suspect: open.suspects_left > 0,
            was_begun: false,
            tries: 0,
            message: Arc::new(delivery.message),
        };
        let key = key_of(&item);
        self.queue.push(&key, Queued { item, permit: Some(permit), failures: 0 });
    }

    /// Takes up dead letters that are to be tried again.
    async fn find_retries(&mut self) {
        if Instant::now() < self.next_retry_poll {
            return;
        }
        self.next_retry_poll = Instant::now() + self.consumer.options.retry_poll;
        let parts: Vec<u32> =
            self.open.iter().filter(|(_, open)| open.suspects_left == 0).map(|(part, _)| *part).collect();
        if parts.is_empty() {
            return;
        }
        let reading = self.consumer.database.tables.to_retry(&self.consumer.name, &parts, RETRIES_MAX);
        let letters = match self.in_flight.beside(reading).await {
            Ok(letters) => letters,
            Err(error) => return tracing::warn!(%error, "dead letters cannot be read, trying again"),
        };
        for (letter, is_alone) in letters {
            let Some(open) = self.open.get(&letter.part) else { continue };
            if !self.retrying.insert(letter.message.id().to_owned()) {
                continue;
            }
            let item = Item {
                part: letter.part,
                fence: open.fence,
                origin: Origin::DeadLetter { number: letter.number, is_alone },
                fault: None,
                is_suspect: false,
                was_begun: false,
                tries: letter.tries,
                message: Arc::new(letter.message),
            };
            let key = key_of(&item);
            self.queue.push(&key, Queued { item, permit: None, failures: 0 });
        }
    }

    /// Begins what may begin.
    fn begin(&mut self) {
        let now = Instant::now();
        while self.in_flight.len() < self.consumer.options.concurrency {
            let Some((key, queued)) = self.queue.take(now) else { return };
            let part = queued.item.part;
            if self.parts.held(part, now).is_none() {
                // The lease has ended; the next renewal says whose it is now.
                self.queue.failed(&key, queued, self.parts.next_tick());
                continue;
            }
            if let Some(open) = self.open.get_mut(&part) {
                open.in_flight += 1;
            }
            let (consumer, flow, handler) = (self.consumer, self.flow, self.handler);
            self.in_flight.running.push(Box::pin(async move {
                let end = Effect { consumer, flow, handler, item: &queued.item }.run().await;
                (key, queued, end)
            }));
        }
    }

    fn ended(&mut self, key: &Arc<str>, mut queued: Queued, end: End) {
        let counters = &self.consumer.counters;
        let Item { part, fence, .. } = queued.item;
        let is_ours = |open: &&mut OpenPart| open.fence == fence;
        let is_leaving = self.leaving.get(&part).is_some_and(|open| open.fence == fence);
        let open = if is_leaving { self.leaving.get_mut(&part) } else { self.open.get_mut(&part) };
        let mut open = open.filter(is_ours);
        if let Some(open) = &mut open {
            open.in_flight -= 1;
        }
        let count = match &end {
            End::Handled => &counters.handled,
            End::Duplicate => &counters.duplicates,
            End::Dead => &counters.dead,
            End::Parked => &counters.parked,
            End::FencedOff => &counters.fenced_off,
            End::TryAgain { .. } => &counters.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let End::TryAgain { tries, error } = end {
            let id = queued.item.message.id();
            tracing::warn!(
                consumer = &*self.consumer.name,
                id,
                tries,
                error,
                "a message was not handled, trying again"
            );
            queued.item.tries = tries;
            queued.item.was_begun = true;
            queued.failures += 1;
            let backoff = self.consumer.options.backoff;
            let pause = backoff.min.saturating_mul(1 << (queued.failures - 1).min(20)).min(backoff.max);
            if open.is_some() && !is_leaving {
                return self.queue.failed(key, queued, Instant::now() + pause);
            }
            self.retrying.remove(queued.item.message.id());
            return self.queue.done(key);
        }
        self.queue.done(key);
        match queued.item.origin {
            Origin::DeadLetter { .. } => {
                self.retrying.remove(queued.item.message.id());
                if end == End::Handled {
                    counters.retried.fetch_add(1, Ordering::Relaxed);
                }
                // Its successors, or an arrival that was appended meanwhile.
                self.next_retry_poll = Instant::now();
            }
            Origin::Source { position } if end != End::FencedOff => {
                let Some(open) = open else { return };
                open.progress.handled(position);
                open.handled.push(HandledMessage { lane: lane_of(&queued.item.message), position });
                if queued.item.is_suspect && end != End::Duplicate && open.suspects_left > 0 {
                    open.suspects_left -= 1;
                    if open.suspects_left == 0 {
                        open.permits.add_permits(self.consumer.options.partition_messages_max - 1);
                    }
                }
            }
            Origin::Source { .. } => {}
        }
        drop(queued.permit);
    }

    /// Tells the source what is handled, where it wants to know.
    async fn report_handled(&mut self) {
        let all = self.open.values_mut().chain(self.leaving.values_mut());
        let handled: Vec<HandledMessage> = all.flat_map(|open| std::mem::take(&mut open.handled)).collect();
        if !handled.is_empty()
            && let Err(error) = self.in_flight.beside(self.consumer.source.handled(&handled)).await
        {
            // They will be read again, and recognised by their receipts.
            tracing::warn!(%error, "the source was not told what is handled");
        }
    }

    fn next_event(&self) -> Instant {
        let mut until = self.parts.next_tick().min(self.next_retry_poll);
        if self.in_flight.len() < self.consumer.options.concurrency {
            until = self.queue.next_due().map_or(until, |due| until.min(due));
        }
        if self.leaving.values().any(|part| part.in_flight == 0) { Instant::now() } else { until }
    }

    /// Finishes what is in flight, and leaves.
    async fn end(mut self) {
        for open in self.open.values() {
            open.reader.abort();
        }
        while let Some((key, queued, end)) = self.in_flight.next().await {
            self.ended(&key, queued, end);
        }
        self.report_handled().await;
        let mut positions = positions(&self.open);
        positions.extend(self::positions(&self.leaving));
        if let Err(error) = self.parts.leave(|part| positions.get(&part).copied().unwrap_or(0)).await {
            tracing::warn!(%error, "the consumer stopped without its database; its partitions are free when their lease ends");
        }
    }
}

/// How far each partition is handled.
fn positions(parts: &HashMap<u32, OpenPart>) -> HashMap<u32, i64> {
    parts.iter().map(|(part, open)| (*part, open.progress.position())).collect()
}

/// Messages without an ordering key have no order: each is a key of its own. Retries have their own line: an arrival that
/// waits because its sequence is full must not be in their way. Between the two, the row of the sequence decides.
fn key_of(item: &Item) -> String {
    let line = match item.origin {
        Origin::Source { .. } => "new",
        Origin::DeadLetter { .. } => "retry",
    };
    match item.message.ordering_key() {
        Some(key) => format!("{line}:key:{key}"),
        None => format!("{line}:id:{}", item.message.id()),
    }
}

/// Reads a partition in a task of its own.
struct Reading {
    source: Arc<dyn Source>,
    part: u32,
    fence: i64,
    permits: Arc<Semaphore>,
    arrivals: mpsc::UnboundedSender<Arrived>,
}

impl Reading {
    async fn read(self, mut position: i64) {
        loop {
            if let Err(error) = self.read_on(&mut position).await {
                let part = self.part;
                tracing::warn!(part, %error, "a partition cannot be read, trying again");
            }
            if self.arrivals.is_closed() {
                return;
            }
            tokio::time::sleep(REOPEN_PAUSE).await;
        }
    }

    async fn read_on(&self, position: &mut i64) -> Result<()> {
        let mut reader = self.source.open(self.part, *position).await?;
        loop {
            let Ok(permit) = self.permits.clone().acquire_owned().await else { return Ok(()) };
            let delivery = reader.next().await?;
            *position = delivery.position;
            let arrived = Arrived { part: self.part, fence: self.fence, delivery, permit };
            if self.arrivals.send(arrived).is_err() {
                return Ok(());
            }
        }
    }
}
