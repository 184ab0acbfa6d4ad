//! Which event may be delivered next: of each object one at a time, the oldest first. Pure: no clock, no store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use onceward::Id;

/// Events in the order of their arrival, by object.
#[derive(Debug, Default)]
pub(super) struct ObjectQueues {
    objects: HashMap<Object, Queue>,
    known: HashSet<Id>,
    /// The objects whose first event may be tried from this time on, in that order.
    due: BTreeMap<(Duration, u64), Object>,
    tickets: u64,
}

/// What events are about. An event without an object is one by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Object {
    Named(String),
    Alone(Id),
}

/// The events of one object, oldest first.
#[derive(Debug, Default)]
struct Queue {
    events: BTreeSet<(u64, Id)>,
    state: QueueState,
}

#[derive(Debug, Default)]
enum QueueState {
    #[default]
    Idle,
    /// In `due` under this place.
    Due((Duration, u64)),
    Running(u64, Id),
}

/// An event that waits to be delivered.
#[derive(Clone, Debug)]
pub(super) struct QueuedEvent {
    pub(super) id: Id,
    pub(super) object: Object,
    pub(super) arrived_us: u64,
}

impl ObjectQueues {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether an event is in its queue.
    pub(super) fn knows(&self, id: &Id) -> bool {
        self.known.contains(id)
    }

    /// Adds an event that was stored; one that is known is not added again.
    pub(super) fn add(&mut self, event: QueuedEvent) {
        let QueuedEvent { id, object, arrived_us } = event;
        if !self.known.insert(id.clone()) {
            return;
        }
        let queue = self.objects.entry(object.clone()).or_default();
        queue.events.insert((arrived_us, id));
        if matches!(queue.state, QueueState::Idle) {
            self.make_due(&object, Duration::ZERO);
        }
    }

    /// The next event that may be tried at this time. It is running from now on.
    pub(super) fn begin(&mut self, now: Duration) -> Option<(Id, Object)> {
        let (&place, _) = self.due.first_key_value().filter(|((from, _), _)| *from <= now)?;
        let object = self.due.remove(&place)?;
        let queue = self.objects.get_mut(&object)?;
        let (arrived_us, id) = queue.events.first()?;
        let (arrived_us, id) = (*arrived_us, id.clone());
        queue.state = QueueState::Running(arrived_us, id.clone());
        Some((id, object))
    }

    /// When the next event may be tried.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((from, _), _)| *from)
    }

    /// The running event of this object is delivered, dead, or gone.
    pub(super) fn over(&mut self, object: &Object) {
        let Some(queue) = self.objects.get_mut(object) else { return };
        if let QueueState::Running(arrived_us, id) = std::mem::take(&mut queue.state) {
            self.known.remove(&id);
            queue.events.remove(&(arrived_us, id));
        }
        if queue.events.is_empty() {
            self.objects.remove(object);
        } else {
            self.make_due(object, Duration::ZERO);
        }
    }

    /// The running event of this object is tried again from this time on. Those behind it wait.
    pub(super) fn again(&mut self, object: &Object, from: Duration) {
        if let Some(queue) = self.objects.get_mut(object) {
            queue.state = QueueState::Idle;
            self.make_due(object, from);
        }
    }

    fn make_due(&mut self, object: &Object, from: Duration) {
        self.tickets += 1;
        let place = (from, self.tickets);
        if let Some(queue) = self.objects.get_mut(object) {
            if let QueueState::Due(before) = queue.state {
                self.due.remove(&before);
            }
            queue.state = QueueState::Due(place);
            self.due.insert(place, object.clone());
        }
    }
}

#[cfg(test)]
#[path = "object_queues_test.rs"]
mod tests;
