//! Waits for runs of other processes: one batched load per tick for all ids that are waited for. The tick adapts:
//! short after every change and for every new waiter, longer while nothing happens, and never past the end of a lease
//! that is waited for. A signal of the store's own cuts it short. An id whose run is followed in a front is looked at
//! rarely, and whenever the front says something new.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hashbrown::HashMap;

use super::inner::Inner;
use super::oneshot::{Receiver, Sender, oneshot};
use super::sealed::open_any;
use super::sync::Mutex;
use super::timeout::{either, signalled, within};
use crate::error::Result;
use crate::id::Id;
use crate::receipt::{Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Due, Loaded};

/// Shortest tick: a few round trips to a store nearby.
const TICK_MIN: Duration = Duration::from_millis(2);
/// Longest tick: what a waiter loses at most once it has waited for seconds already.
const TICK_MAX: Duration = Duration::from_millis(250);
/// Longest time between two looks for an id whose run is followed in a front: what a lost signal costs at most.
const RARELY: Duration = Duration::from_secs(2);
/// Ids in one load, so that a tick is a bounded query.
const LOAD_IDS_MAX: usize = 1_024;

pub(crate) struct Poller {
    state: Mutex<PollerState>,
}

#[derive(Default)]
struct PollerState {
    awake: bool,
    watched: HashMap<Id, WatchedId>,
    watches: u64,
    /// Cuts the current pause short.
    nudge: Option<Sender<()>>,
    tick: Duration,
}

struct WatchedId {
    /// Which watch this is. A look that was sent before it began says nothing to it: its answer may be
    /// older than what the watcher has seen.
    number: u64,
    /// When the lease that is waited for ends, by this process's clock.
    lease_ends: Duration,
    /// When it is looked at next while its run is followed in a front; `None`: at every tick.
    next_look: Option<Duration>,
    answer: Sender<Result<Option<Receipt>>>,
}

/// Ready with the receipt once it is no longer held by a living lease (`None`: it is gone). Dropping
/// it stops the watching.
pub(crate) struct Watching<'a> {
    poller: &'a Poller,
    id: &'a Id,
    answer: Receiver<Result<Option<Receipt>>>,
}

impl Poller {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(PollerState::default()) }
    }

    /// Watches a held receipt. Each id has at most one watcher here: the leader of its flight. If its run is followed in a
    /// front, it is looked at rarely.
    pub(crate) fn watch<'a>(
        &'a self,
        inner: &Arc<Inner>,
        id: &'a Id,
        receipt: &Receipt,
        is_followed: bool,
    ) -> Watching<'a> {
        let (sender, answer) = oneshot();
        let now = inner.now();
        let (lease_ends, next_look) = (lease_ends(receipt.due, now), is_followed.then(|| now + RARELY));
        let (nudge, wake) = {
            let mut state = self.state.lock();
            state.watches += 1;
            let number = state.watches;
            state.watched.insert(id.clone(), WatchedId { number, lease_ends, next_look, answer: sender });
            if !is_followed {
                state.tick = TICK_MIN;
            }
            (state.nudge.take(), !std::mem::replace(&mut state.awake, true))
        };
        drop(nudge);
        if wake {
            inner.runtime.spawn(Box::pin(poll(Arc::downgrade(inner), inner.runtime.clone())));
        }
        Watching { poller: self, id, answer }
    }

    /// How long until the next tick, and what cuts it short; `None` when no caller waits any more.
    fn pause(&self, now: Duration) -> Option<(Duration, Receiver<()>)> {
        let mut state = self.state.lock();
        if state.watched.is_empty() {
            state.awake = false;
            state.nudge = None;
            return None;
        }
        let (nudge, nudged) = oneshot();
        state.nudge = Some(nudge);
        let tick = state.tick;
        let pause = state.watched.values().map(|watched| {
            let until_look = watched.next_look.map_or(tick, |next_look| next_look.saturating_sub(now));
            until_look.min(watched.lease_ends.saturating_sub(now).max(TICK_MIN))
        });
        Some((pause.min().unwrap_or(tick), nudged))
    }

    /// Everything that is to be looked at now, in a fixed order: stores like it, and one seed then gives one history.
    fn due(&self, now: Duration) -> (Vec<Id>, Vec<u64>) {
        let mut state = self.state.lock();
        let due = state.watched.iter_mut().filter(|(_, watched)| {
            watched.next_look.is_none_or(|next_look| next_look <= now) || watched.lease_ends <= now
        });
        let mut due: Vec<_> = due
            .map(|(id, watched)| {
                // Whatever this look finds, and if it fails.
                watched.next_look = watched.next_look.map(|_| now + RARELY);
                (id.clone(), watched.number)
            })
            .collect();
        due.sort();
        due.into_iter().unzip()
    }

    /// Something changed in this process that waiters may have been waiting for: look at once.
    pub(crate) fn look_now(&self) {
        let nudge = {
            let mut state = self.state.lock();
            state.tick = TICK_MIN;
            for watched in state.watched.values_mut() {
                watched.next_look = watched.next_look.map(|_| Duration::ZERO);
            }
            state.nudge.take()
        };
        drop(nudge);
    }

    /// Has an id whose run is followed in a front looked at now, once.
    pub(crate) fn look_at(&self, id: &Id) {
        let nudge = {
            let PollerState { watched, nudge, .. } = &mut *self.state.lock();
            let next_look = watched.get_mut(id).and_then(|watched| watched.next_look.as_mut());
            next_look.and_then(|next_look| {
                *next_look = Duration::ZERO;
                nudge.take()
            })
        };
        drop(nudge);
    }

    /// Says whether the run of an id is followed in a front now.
    pub(crate) fn set_followed(&self, id: &Id, is_followed: bool, now: Duration) {
        let nudge = {
            let mut state = self.state.lock();
            let Some(watched) = state.watched.get_mut(id) else { return };
            if watched.next_look.is_some() == is_followed {
                return;
            }
            watched.next_look = is_followed.then(|| now + RARELY);
            (!is_followed).then(|| {
                state.tick = TICK_MIN;
                state.nudge.take()
            })
        };
        drop(nudge);
    }

    /// How long the lease of an id that is watched lasts, as far as it is known.
    pub(crate) fn lease_left(&self, id: &Id, now: Duration) -> Option<Duration> {
        let state = self.state.lock();
        let lease_ends = state.watched.get(id)?.lease_ends;
        (lease_ends != Duration::MAX).then(|| lease_ends.saturating_sub(now))
    }
}

/// Like the lease renewal, it does not keep the engine alive between ticks.
async fn poll(inner: Weak<Inner>, runtime: Arc<dyn Runtime>) {
    let mut watch = inner.upgrade().and_then(|inner| inner.store.watch());
    loop {
        let Some(Some((pause, nudged))) = inner.upgrade().map(|inner| inner.poller.pause(runtime.now()))
        else {
            return;
        };
        let nudged = async {
            nudged.await;
        };
        within(&*runtime, pause, either(nudged, signalled(&*runtime, &mut watch))).await;
        let Some(inner) = inner.upgrade() else { return };
        let (ids, numbers) = inner.poller.due(runtime.now());
        let mut changed = false;
        for (ids, numbers) in ids.chunks(LOAD_IDS_MAX).zip(numbers.chunks(LOAD_IDS_MAX)) {
            match inner.load_all(ids).await {
                Ok(found) => changed |= deliver(&inner, ids, numbers, found),
                Err(error) => {
                    tracing::warn!(%error, "runs of other processes could not be read, retrying");
                }
            }
        }
        let mut state = inner.poller.state.lock();
        state.tick = if changed { TICK_MIN } else { (state.tick * 2).clamp(TICK_MIN, TICK_MAX) };
    }
}

/// Hands out what is no longer held; says whether there was any.
fn deliver(inner: &Inner, ids: &[Id], numbers: &[u64], found: Vec<Loaded>) -> bool {
    let now = inner.now();
    let mut ready = Vec::new();
    let mut state = inner.poller.state.lock();
    for ((id, number), found) in ids.iter().zip(numbers).zip(found) {
        let Some(watched) = state.watched.get_mut(id).filter(|watched| watched.number == *number) else {
            continue;
        };
        let receipt = found.and_then(|found| open_any(found.as_ref()));
        if let Ok(Some(Receipt { status: Status::Held(_), due, .. })) = &receipt
            && !due.is_over()
        {
            watched.lease_ends = lease_ends(*due, now);
            continue;
        }
        if let Some(watched) = state.watched.remove(id) {
            ready.push((watched.answer, receipt));
        }
    }
    drop(state);
    let any = !ready.is_empty();
    for (answer, receipt) in ready {
        answer.send(receipt);
    }
    any
}

fn lease_ends(due: Due, now: Duration) -> Duration {
    match due {
        Due::In(remaining) => now + remaining,
        Due::Over(_) => now,
        Due::Never => Duration::MAX,
    }
}

impl Future for Watching<'_> {
    type Output = Result<Option<Receipt>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The poller never drops a watcher without an answer; if its task was lost, look again.
        Pin::new(&mut self.answer).poll(cx).map(|arrived| arrived.unwrap_or(Ok(None)))
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.poller.state.lock().watched.remove(self.id);
    }
}
