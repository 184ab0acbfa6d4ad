//! A consumer at work: partitions come and go, messages arrive, effects begin and end.

mod ended;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::Result;
use onceward_stores::sql::SqlTransactions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::batch::Batch;
use super::effect::{Effect, End, Item, Origin};
use super::in_flight::InFlight;
use super::numbers::Numbers;
use super::open_part::OpenPart;
use super::progress::Progress;
use super::reading::{Arrived, Reading};
use super::{Consumer, Failure, Received};
use crate::key_queue::KeyQueue;
use crate::parts::{GainedPart, Parts};
use crate::source::HandledMessage;

/// Dead letters that are taken up at a time.
const RETRIES_MAX: i64 = 200;
/// Counts of tries are swept this often.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// What the source was not told is told again after this.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// A message, and what it occupies until it is handled.
struct Queued {
    item: Item,
    permit: Option<OwnedSemaphorePermit>,
    /// The highest number of its ordering key that had come before it, if its own is lower.
    newer: Option<i64>,
    /// Times that it was tried in this process since it last went well: for the pause.
    failures: u32,
}

type Ended = (Arc<str>, Queued, End);

/// A message and its line, or several that go into one transaction.
type Attempt = Vec<(Arc<str>, Queued)>;

struct Run<'a, T, A, F: Future> {
    consumer: &'a Consumer<T>,
    /// Tries what goes into one transaction.
    attempt: A,
    /// Most messages of one transaction.
    batch_max: usize,
    parts: Parts,
    open: HashMap<u32, OpenPart>,
    /// More than the share of this process: released as soon as nothing of them is in flight.
    leaving: HashMap<u32, OpenPart>,
    queue: KeyQueue<Queued>,
    numbers: Numbers,
    next_order_warning: Instant,
    in_flight: InFlight<F>,
    arrivals: mpsc::UnboundedSender<Arrived>,
    retrying: HashSet<String>,
    /// Messages to be marked before they are tried. They go one at a time in this process, so that one that ends it leaves
    /// no mark on others; their keys are busy.
    suspects: VecDeque<(Arc<str>, Queued)>,
    is_marking: bool,
    next_retry_poll: Instant,
    next_sweep: Instant,
    next_report: Option<Instant>,
}

pub(super) async fn run<T, H, W>(
    consumer: &Consumer<T>,
    handler: &H,
    batch_max: usize,
    stop: impl Future<Output = ()>,
) -> Result<()>
where
    T: SqlTransactions,
    H: Fn(Vec<Received>, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    let flow = consumer.flow();
    let (tables, lease) = (consumer.database.tables.clone(), consumer.options.lease);
    tables.sweep_tries().await?;
    let parts = Parts::open(tables, flow.clone(), consumer.source.partitions(), lease).await?;
    if consumer.source.takes_from_outbox() {
        parts.use_outbox(&format!("the consumer `{}`", consumer.name)).await?;
    }
    if consumer.source.partitions() == 1 {
        tracing::info!(
            consumer = &*consumer.name,
            "the source has one partition: one process consumes at a time"
        );
    }
    let (arrivals, mut arrived) = mpsc::unbounded_channel();
    let flow = &*flow;
    let attempt = |batch: Attempt| async move {
        let ends = match &batch[..] {
            [(_, queued)] => vec![Effect { consumer, flow, handler, item: &queued.item }.run().await],
            several => {
                let items: Vec<&Item> = several.iter().map(|(_, queued)| &queued.item).collect();
                Batch { consumer, flow, handler, items: &items }.run().await
            }
        };
        batch.into_iter().zip(ends).map(|((key, queued), end)| (key, queued, end)).collect()
    };
    let mut run = Run {
        consumer,
        attempt,
        batch_max,
        parts,
        open: HashMap::new(),
        leaving: HashMap::new(),
        queue: KeyQueue::default(),
        numbers: Numbers::default(),
        next_order_warning: Instant::now(),
        in_flight: InFlight::new(),
        arrivals,
        retrying: HashSet::new(),
        suspects: VecDeque::new(),
        is_marking: false,
        next_retry_poll: Instant::now(),
        next_sweep: Instant::now() + SWEEP_EVERY,
        next_report: None,
    };
    tokio::pin!(stop);
    loop {
        run.renew().await;
        run.find_retries().await;
        run.sweep().await;
        run.clear_suspicion();
        if run.next_report.is_some_and(|at| at <= Instant::now()) {
            run.report_handled().await;
        }
        run.begin();
        let until = run.next_event();
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = run.in_flight.next() => {
                run.ended(ended);
                while let Some(Some(ended)) = futures_util::FutureExt::now_or_never(run.in_flight.next()) {
                    run.ended(ended);
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

impl<T, A, F> Run<'_, T, A, F>
where
    T: SqlTransactions,
    A: Fn(Attempt) -> F,
    F: Future<Output = Vec<Ended>>,
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
                tracing::warn!(%error, "partitions were not released; their lease will expire");
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
        // What is read again then comes behind newer ones.
        self.numbers.forget(part);
        let retrying = &mut self.retrying;
        let queue = &mut self.queue;
        self.suspects.retain(|(key, queued)| {
            let stays = queued.item.part != part;
            if !stays {
                retrying.remove(queued.item.message.id());
                queue.done(key);
            }
            stays
        });
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
        let is_read = Arc::new(AtomicBool::new(false));
        let reader = Reading {
            source: self.consumer.source.clone(),
            part: gained.part,
            fence: gained.fence,
            permits: permits.clone(),
            arrivals: self.arrivals.clone(),
            is_read: is_read.clone(),
        };
        let open = OpenPart {
            fence: gained.fence,
            reader: tokio::spawn(reader.read(gained.position)),
            permits,
            progress: Progress::after(gained.position),
            handled: Vec::new(),
            in_flight: 0,
            suspects_left: if gained.was_lapsed { messages_max } else { 0 },
            last_event: Instant::now(),
            is_read,
            has_retries_read: false,
            retries: 0,
        };
        self.open.insert(gained.part, open);
        self.next_retry_poll = Instant::now();
    }

    fn arrived(&mut self, arrived: Arrived) {
        let Arrived { part, fence, delivery, permit } = arrived;
        let Some(open) = self.open.get_mut(&part).filter(|open| open.fence == fence) else { return };
        open.progress.read(delivery.position);
        open.last_event = Instant::now();
        let fault = self.consumer.fault_of(&delivery);
        let newer = match (delivery.message.ordering_key(), delivery.number) {
            (Some(key), Some(number)) => self.numbers.newer(part, key, number),
            _ => None,
        };
        let item = Item {
            part,
            fence,
            origin: Origin::Source { position: delivery.position },
            fault,
            is_suspect: open.suspects_left > 0,
            was_begun: false,
            tries: 0,
            message: Arc::new(delivery.message),
        };
        let key = key_of(&item);
        self.queue.push(&key, Queued { item, permit: Some(permit), newer, failures: 0 });
    }

    /// Takes up dead letters that are to be tried again.
    async fn find_retries(&mut self) {
        if Instant::now() < self.next_retry_poll {
            return;
        }
        self.next_retry_poll = Instant::now() + self.consumer.options.retry_poll;
        let parts: Vec<u32> = self.open.keys().copied().collect();
        if parts.is_empty() {
            return;
        }
        let reading = self.consumer.database.tables.to_retry(&self.consumer.scope, &parts, RETRIES_MAX);
        let letters = match self.in_flight.beside(reading).await {
            Ok(letters) => letters,
            Err(error) => return tracing::warn!(%error, "dead letters cannot be read, trying again"),
        };
        for part in parts {
            if let Some(open) = self.open.get_mut(&part) {
                open.has_retries_read = true;
            }
        }
        for (letter, is_alone) in letters {
            let Some(open) = self.open.get_mut(&letter.part) else { continue };
            if !self.retrying.insert(letter.message.id().to_owned()) {
                continue;
            }
            open.retries += 1;
            open.last_event = Instant::now();
            let item = Item {
                part: letter.part,
                fence: open.fence,
                origin: Origin::DeadLetter { number: letter.number, is_alone },
                fault: self.consumer.unknown_topic(&letter.message),
                is_suspect: open.suspects_left > 0,
                was_begun: false,
                tries: letter.tries,
                message: Arc::new(letter.message),
            };
            let key = key_of(&item);
            self.queue.push(&key, Queued { item, permit: None, newer: None, failures: 0 });
        }
    }

    /// Removes counts of tries that nothing comes to any more.
    async fn sweep(&mut self) {
        if Instant::now() < self.next_sweep {
            return;
        }
        self.next_sweep = Instant::now() + SWEEP_EVERY;
        if let Err(error) = self.in_flight.beside(self.consumer.database.tables.sweep_tries()).await {
            tracing::warn!(%error, "old counts of tries were not removed, trying again later");
        }
    }

    /// Begins what may begin.
    fn begin(&mut self) {
        let now = Instant::now();
        while self.in_flight.len() < self.consumer.options.concurrency {
            let marked = if self.is_marking { None } else { self.suspects.pop_front() };
            let Some((key, queued)) = marked.or_else(|| self.queue.take(now)) else { return };
            if queued.item.marks() && self.is_marking {
                self.suspects.push_back((key, queued));
                continue;
            }
            let part = queued.item.part;
            if self.parts.held(part, now).is_none() {
                // The lease has ended; the next renewal says whose it is now.
                self.queue.failed(&key, queued, self.parts.next_tick());
                continue;
            }
            self.is_marking |= queued.item.marks();
            let batch = self.batch_of(key, queued);
            if let Some(open) = self.open.get_mut(&part) {
                open.in_flight += batch.len();
            }
            self.in_flight.push((self.attempt)(batch));
        }
    }

    /// What goes into one transaction with a message that was taken: others of its partition.
    fn batch_of(&mut self, key: Arc<str>, queued: Queued) -> Attempt {
        let Item { part, fence, .. } = queued.item;
        if self.batch_max < 2 || !queued.item.fits_in_batch() {
            return vec![(key, queued)];
        }
        let fits = |other: &Queued| {
            other.item.part == part && other.item.fence == fence && other.item.fits_in_batch()
        };
        let more = self.queue.take_more(&key, self.batch_max - 1, fits);
        std::iter::once((key, queued)).chain(more).collect()
    }

    /// After an unclean end, whatever was in flight is behind us where nothing comes any more.
    fn clear_suspicion(&mut self) {
        let now = Instant::now();
        for open in self.open.values_mut() {
            if open.quiet_at().is_some_and(|at| at <= now) {
                open.clear_suspicion(self.consumer.options.partition_messages_max);
            }
        }
    }

    /// Tells the source what is handled, where it wants to know.
    async fn report_handled(&mut self) {
        self.next_report = None;
        let all = self.open.iter_mut().chain(self.leaving.iter_mut());
        let taken: Vec<(u32, i64, Vec<HandledMessage>)> = all
            .filter(|(_, open)| !open.handled.is_empty())
            .map(|(part, open)| (*part, open.fence, std::mem::take(&mut open.handled)))
            .collect();
        let handled: Vec<HandledMessage> = taken.iter().flat_map(|(.., handled)| handled).copied().collect();
        if handled.is_empty() {
            return;
        }
        let Err(error) = self.in_flight.beside(self.consumer.source.handled(&handled)).await else { return };
        tracing::warn!(%error, "the source was not told what is handled, trying again");
        // What it still has would be handled a second time when the receipts are gone.
        for (part, fence, handled) in taken {
            let open = self.open.get_mut(&part).or(self.leaving.get_mut(&part));
            if let Some(open) = open.filter(|open| open.fence == fence) {
                open.handled.extend(handled);
            }
        }
        self.next_report = Some(Instant::now() + REPORT_PAUSE);
    }

    fn next_event(&self) -> Instant {
        let mut until = self.parts.next_tick().min(self.next_retry_poll);
        let quiet = self.open.values().filter_map(OpenPart::quiet_at);
        until = quiet.chain(self.next_report).fold(until, Instant::min);
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
        // Leases are renewed meanwhile: what is in flight must not be fenced off, nor count as a death.
        self.parts.take_no_more();
        while self.in_flight.len() > 0 {
            tokio::select! {
                Some(ended) = self.in_flight.next() => self.ended(ended),
                () = tokio::time::sleep_until(self.parts.next_tick()) => self.renew().await,
            }
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
