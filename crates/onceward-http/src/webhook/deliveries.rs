//! Delivers stored events to the service behind: at least once each, and those of one object in the order in which they
//! arrived.
//!
//! ```text
//! arrival ─▶ stored, acknowledged ─▶ queue of its object ─▶ try ─▶ 2xx: done
//!               │                        ▲                    ├─▶ anything else: tried again after a pause
//!               └─ a restart reads them ─┘                    └─▶ tries used up: dead, and the next one of the object
//! ```
//!
//! **One process delivers.** Of all that share a store, the one that holds the lease `webhook deliveries` does; if it ends,
//! another one reads what is stored and continues. A lease for each object would spread the work, but then each process
//! would have to know all events of an object before it begins one, which is this lease again, once per object and
//! event.
//!
//! A process that was paused and has lost the lease does no harm: each try is a claim on the receipt as it was found, so
//! it cannot begin an event that another process has begun, and it begins the next one of an object only after it has
//! itself recorded the end of the one before.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use onceward::receipt::Status;
use onceward::{
    Ask, Due, Fingerprint, Id, Lease, OnDuplicate, OnUnknown, Onceward, Outcome, Policy, Receipt, Stopped,
    Worked,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::event_scan::EventScan;
use super::object_queues::{Object, ObjectQueues, QueuedEvent};
use super::stored_event::StoredEvent;
use crate::snapshot::{self, Omitted};

/// Tries at once.
const CONCURRENCY: usize = 64;
/// Events that have arrived and are not in their queues yet.
const ARRIVALS_MAX: usize = 16_384;
/// How long another process waits if this one dies without a word.
const LEADER_LEASE: Duration = Duration::from_secs(10);
const LEADER_PAUSE: Duration = Duration::from_millis(500);
/// The pause after an error of the store.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// The pause before another look at an event that another worker has.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(250);
/// The pause before another look at an event that no route is for.
const NO_ROUTE_PAUSE: Duration = Duration::from_secs(30);

/// Hands one event to the service behind.
pub trait Deliver: Send + Sync + 'static {
    /// Under which policy an event is delivered: its lease, tries and pauses. `None` if no route is for it any more; it
    /// is then left in the store.
    fn policy(&self, event: &StoredEvent) -> Option<Arc<Policy>>;

    /// One try. It may be dropped at any time, and then counts as one.
    fn deliver<'a>(
        &'a self,
        event: StoredEvent,
        lease: &'a Lease,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>>;
}

/// The result of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivered {
    /// The service has taken it: 2xx.
    Taken,
    /// Any other answer, or none, and why. It is tried again.
    Failed(String),
    /// An answer that the service would give to every further try, and why. It is a dead letter at once.
    Final(String),
}

/// Where stored events are announced. Cheap to clone.
#[derive(Clone)]
pub struct Arrivals(Arc<Announced>);

struct Announced {
    sender: mpsc::Sender<QueuedEvent>,
    receiver: Mutex<Option<mpsc::Receiver<QueuedEvent>>>,
    /// Some were not announced: the store has to be read.
    missed: AtomicBool,
    last_us: AtomicU64,
    dead_again: Arc<AtomicU64>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrivals {
    /// Nothing has arrived yet.
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel(ARRIVALS_MAX);
        let receiver = Mutex::new(Some(receiver));
        Self(Arc::new(Announced {
            sender,
            receiver,
            missed: AtomicBool::new(false),
            last_us: AtomicU64::new(0),
            dead_again: Arc::default(),
        }))
    }

    /// The time of an arrival, later than that of every earlier one in this process.
    pub(crate) fn stamp(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX - 1);
        let later = |last: u64| Some(now.max(last + 1));
        let before =
            self.0.last_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).expect("always some");
        now.max(before + 1)
    }

    /// Has every later arrival be later than this time, which one has that is stored.
    fn later_than(&self, arrived_us: u64) {
        self.0.last_us.fetch_max(arrived_us, Ordering::Relaxed);
    }

    /// Announces an event that was stored.
    pub(crate) fn announce(&self, id: Id, object: Option<String>, arrived_us: u64) {
        let event = QueuedEvent { object: object_of(&id, object), id, arrived_us };
        if self.0.sender.try_send(event).is_err() {
            self.0.missed.store(true, Ordering::Relaxed);
        }
    }

    /// Counts an event that its sender has sent again while it is dead.
    pub(crate) fn dead_again(&self) {
        self.0.dead_again.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Arrivals")
    }
}

pub(super) fn object_of(id: &Id, object: Option<String>) -> Object {
    // Objects of two routes are two.
    object.map_or_else(
        || Object::Alone(id.clone()),
        |name| Object::Named(format!("{}\n{name}", id.operation())),
    )
}

/// Delivers stored events. See [`Deliver`].
pub struct Deliveries {
    onceward: Onceward,
    arrivals: Arrivals,
    counts: Arc<DeliveryCounts>,
}

/// Counts of deliveries. All only ever grow, except `waiting`, which is what this process knows of now.
#[derive(Debug, Default)]
pub struct DeliveryCounts {
    delivered: AtomicU64,
    failed_tries: AtomicU64,
    dead: AtomicU64,
    /// Counted where events arrive.
    dead_again: Arc<AtomicU64>,
    waiting: AtomicU64,
}

impl DeliveryCounts {
    /// Writes them as metrics.
    pub fn write_metrics(&self, out: &mut String) {
        for (name, kind, value) in [
            ("webhook_events_delivered_total", "counter", &self.delivered),
            ("webhook_failed_tries_total", "counter", &self.failed_tries),
            ("webhook_events_dead_total", "counter", &self.dead),
            ("webhook_events_dead_again_total", "counter", &self.dead_again),
            ("webhook_events_waiting", "gauge", &self.waiting),
        ] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(out, "# TYPE onceward_{name} {kind}\nonceward_{name} {value}");
        }
    }
}

/// What follows a try.
#[derive(Clone, Copy)]
enum After {
    Delivered,
    Dead,
    /// Nothing is to be done about it.
    Over,
    Again(Duration),
    /// A try was made, and it failed.
    Failed(Duration),
}

impl Deliveries {
    /// Deliveries of what arrives there, and of what is in the store.
    pub fn new(onceward: Onceward, arrivals: Arrivals) -> Self {
        let dead_again = arrivals.0.dead_again.clone();
        let counts = Arc::new(DeliveryCounts { dead_again, ..DeliveryCounts::default() });
        Self { onceward, arrivals, counts }
    }

    /// Returns the counts of deliveries.
    pub fn counts(&self) -> Arc<DeliveryCounts> {
        self.counts.clone()
    }

    /// Delivers until `stop` is ready, then finishes the tries that are under way. Of all processes over one store, one
    /// delivers at a time. Dropping it leaves these tries to the next one, which makes them again.
    pub async fn run_until(self, deliver: Arc<dyn Deliver>, stop: impl Future<Output = ()> + Send) {
        let receiver = self.arrivals.0.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = receiver else {
            tracing::error!("stored events are delivered twice from one place; the second one does nothing");
            return;
        };
        let policy = Policy::queue()
            .to_builder()
            .with_lease(LEADER_LEASE)
            .with_on_duplicate(OnDuplicate::Conflict)
            .with_on_unknown(OnUnknown::Retry)
            .build()
            .expect("a valid policy");
        let policy = Arc::new(policy);
        let mut stop = pin!(stop);
        let mut stopped = false;
        while !stopped {
            let id = Id::new("onceward", "webhook deliveries", "leader").expect("short and plain");
            let ask = Ask::new(id, Fingerprint::of(b""), policy.clone());
            let (stop, stopped) = (&mut stop, &mut stopped);
            let stop_here = stop.as_mut();
            let work = async |_: Lease| {
                *stopped = self.deliver_stored(&deliver, &mut receiver, stop_here).await;
                Err(Stopped::before_effect("it delivers no more"))
            };
            if let Err(error) = self.onceward.run(ask, work).await
                && !*stopped
            {
                tracing::warn!(%error, "stored events are not delivered by this process at the moment");
            }
            if !*stopped {
                tokio::select! {
                    () = tokio::time::sleep(LEADER_PAUSE) => {}
                    () = stop.as_mut() => *stopped = true,
                }
            }
        }
    }

    /// Delivers while this process has the lease. Returns when `stop` is ready.
    async fn deliver_stored(
        &self,
        deliver: &Arc<dyn Deliver>,
        receiver: &mut mpsc::Receiver<QueuedEvent>,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> bool {
        let begun = Instant::now();
        let mut queues = ObjectQueues::default();
        let mut tries: JoinSet<After> = JoinSet::new();
        let mut objects: HashMap<tokio::task::Id, Object> = HashMap::new();
        let mut scan = EventScan::new(self.onceward.caps().promises.shared);
        loop {
            if self.arrivals.0.missed.swap(false, Ordering::Relaxed) {
                scan.start_now();
            }
            if Instant::now() >= scan.next() {
                let latest = scan.run(&self.onceward, &mut queues).await;
                self.arrivals.later_than(latest);
            }
            let now = begun.elapsed();
            while tries.len() < CONCURRENCY
                && let Some((id, object)) = queues.begin(now)
            {
                let (onceward, deliver) = (self.onceward.clone(), deliver.clone());
                let task = tries.spawn(async move { attempt(&onceward, &*deliver, &id).await });
                objects.insert(task.id(), object);
            }
            self.counts.waiting.store(queues.len() as u64, Ordering::Relaxed);
            let wake = queues
                .next_due()
                .filter(|_| tries.len() < CONCURRENCY)
                .map_or(scan.next(), |due| (begun + due).min(scan.next()));
            tokio::select! {
                Some(ended) = tries.join_next_with_id() => {
                    let (task, after) = match ended {
                        Ok((task, after)) => (task, after),
                        Err(error) => (error.id(), After::Failed(ERROR_PAUSE)),
                    };
                    if let Some(object) = objects.remove(&task) {
                        self.apply_after(&mut queues, &object, after, begun.elapsed());
                    }
                }
                Some(event) = receiver.recv() => {
                    let mut next = Some(event);
                    while let Some(event) = next {
                        scan.announced(event, &mut queues);
                        next = receiver.try_recv().ok();
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
                () = stop.as_mut() => break,
            }
        }
        while tries.join_next().await.is_some() {}
        true
    }

    fn apply_after(&self, queues: &mut ObjectQueues, object: &Object, after: After, now: Duration) {
        let count = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match after {
            After::Delivered => count(&self.counts.delivered),
            After::Dead => {
                count(&self.counts.failed_tries);
                count(&self.counts.dead);
            }
            After::Over => {}
            After::Failed(pause) => {
                count(&self.counts.failed_tries);
                return queues.again(object, now + pause);
            }
            After::Again(pause) => return queues.again(object, now + pause),
        }
        queues.over(object);
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deliveries")
    }
}

fn event_of(receipt: &Receipt) -> Option<StoredEvent> {
    StoredEvent::decode(&receipt.status.job()?.input)
}

/// One try of one event, if it is due.
async fn attempt(onceward: &Onceward, deliver: &dyn Deliver, id: &Id) -> After {
    let receipt = match onceward.receipt(id).await {
        Ok(Some(receipt)) => receipt,
        Ok(None) => return After::Over,
        Err(_) => return After::Again(ERROR_PAUSE),
    };
    match (&receipt.status, receipt.due) {
        (Status::Waiting(_), Due::In(pause)) => return After::Again(pause),
        (Status::Held(_), Due::In(lease)) => return After::Again(lease.min(ELSEWHERE_PAUSE)),
        (Status::Waiting(_) | Status::Held(_), _) => {}
        _ => return After::Over,
    }
    let Some(event) = event_of(&receipt) else { return After::Over };
    let Some(policy) = deliver.policy(&event) else {
        tracing::warn!(
            target = event.target,
            "a stored event has no route that delivers it; it stays in the store"
        );
        return After::Again(NO_ROUTE_PAUSE);
    };
    let mut ends = None;
    let ends_here = &mut ends;
    let work = async move |lease: Lease| match deliver.deliver(event, &lease).await {
        Delivered::Taken => Ok(Outcome::succeeded(acknowledged())),
        // It is delivered at least once, each time under the same key: no answer is a failed try like any other.
        Delivered::Failed(why) => Err(Stopped::before_effect(why)),
        Delivered::Final(why) => {
            *ends_here = Some(why.clone());
            Err(Stopped::before_effect(why))
        }
    };
    match onceward.resume(id, &receipt, policy.clone(), work).await {
        Ok(Worked::Finished) => After::Delivered,
        Ok(Worked::Dead) => After::Dead,
        Ok(Worked::Failed(_)) => match ends {
            Some(why) => end_tries(onceward, id, &policy, why).await,
            None => After::Failed(pause_of(onceward, id).await),
        },
        Ok(Worked::TakenElsewhere | Worked::Suspended) => After::Again(ELSEWHERE_PAUSE),
        Ok(_) => After::Over,
        Err(error) => {
            tracing::warn!(?id, %error, "a delivery could not be recorded");
            After::Again(ERROR_PAUSE)
        }
    }
}

/// The pause until the next try of an event that has failed.
async fn pause_of(onceward: &Onceward, id: &Id) -> Duration {
    match onceward.receipt(id).await {
        Ok(Some(Receipt { due: Due::In(pause), .. })) => pause,
        Ok(_) => Duration::ZERO,
        Err(_) => ERROR_PAUSE,
    }
}

/// Makes an event a dead letter before its tries are used up: the last one is made without sending anything.
async fn end_tries(onceward: &Onceward, id: &Id, policy: &Policy, why: String) -> After {
    let Ok(last) = policy.to_builder().with_tries_max(1).build() else { return After::Failed(ERROR_PAUSE) };
    let Ok(Some(receipt)) = onceward.receipt(id).await else { return After::Failed(ERROR_PAUSE) };
    match onceward.resume(id, &receipt, last, async |_| Err(Stopped::before_effect(why))).await {
        Ok(Worked::Dead) => After::Dead,
        _ => After::Failed(ERROR_PAUSE),
    }
}

/// What a retry gets if its route no longer stores events first.
fn acknowledged() -> bytes::Bytes {
    snapshot::encode(StatusCode::OK, &HeaderMap::new(), b"", &Omitted::default())
}
