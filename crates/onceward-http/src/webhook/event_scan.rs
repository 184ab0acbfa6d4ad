//! Reads stored events into their queues, so that those of one object begin in the order of their arrival.
//!
//! A scan is no moment: it may pass the place of an event before that is stored, and then find a later event of the same
//! object. Where several processes store events, a named object's event is therefore begun only after a complete scan that
//! started after the event was stored: whatever was stored before it is found by that scan too. An event is known to be
//! stored because it was announced, or because the scan before has found it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use onceward::{Filter, Id, Onceward, Receipt, Result, Scan, ScanTarget, State};
use tokio::time::Instant;

use super::deliveries::object_of;
use super::object_queues::{Object, ObjectQueues, QueuedEvent};
use super::stored_event::StoredEvent;
use crate::scope::Scope;

/// Events that are known at once. With more, those that arrived first are delivered first, and then the rest is read.
pub(super) const EVENTS_MAX: usize = 100_000;
/// How often the store is read for what did not arrive here: at other processes, or by an operator's retry.
const SCAN_EVERY: Duration = Duration::from_secs(2);
/// The shortest pause between two scans, where events wait for the next one.
const SCAN_PAUSE: Duration = Duration::from_millis(20);
/// A scan is followed by a pause of at least this many times its length.
const SCAN_SHARE: u32 = 4;
const SCAN_PAGE: usize = 256;
/// The pause after an error of the store.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// When the store is read next, and what is known to be in it by then.
pub(super) struct EventScan {
    /// Other processes may store events too.
    is_shared: bool,
    /// Events of named objects that are certainly stored and not in their queues.
    stored: HashSet<Id>,
    /// Whether all that is stored is in the queues. If not, what arrives has to wait behind the rest.
    is_complete: bool,
    next: Instant,
    soonest: Instant,
}

impl EventScan {
    pub(super) fn new(is_shared: bool) -> Self {
        let now = Instant::now();
        Self { is_shared, stored: HashSet::new(), is_complete: false, next: now, soonest: now }
    }

    /// When the next scan is to begin.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Has a scan begin as soon as one may.
    pub(super) fn start_now(&mut self) {
        self.next = self.next.min(self.soonest);
    }

    /// Takes an event that was announced: it is stored.
    pub(super) fn announced(&mut self, event: QueuedEvent, queues: &mut ObjectQueues) {
        if self.is_shared && matches!(event.object, Object::Named(_)) {
            self.stored.insert(event.id);
            self.start_now();
            return;
        }
        self.is_complete &= queues.len() < EVENTS_MAX;
        if self.is_complete {
            queues.add(event);
        }
    }

    /// Reads what is stored into the queues. Returns the time of the latest arrival that it has found.
    pub(super) async fn run(&mut self, onceward: &Onceward, queues: &mut ObjectQueues) -> u64 {
        let begun = Instant::now();
        let found = if queues.len() < EVENTS_MAX { read(onceward, queues).await } else { Ok(Vec::new()) };
        let ended = Instant::now();
        match found {
            Ok(found) => {
                let latest = found.last().map_or(0, |event| event.arrived_us);
                self.take(found, queues);
                self.soonest = ended + SCAN_PAUSE.max((ended - begun) * SCAN_SHARE);
                self.next = self.soonest.max(ended + SCAN_EVERY);
                if !self.stored.is_empty() {
                    self.start_now();
                }
                latest
            }
            Err(error) => {
                tracing::warn!(%error, "stored events could not be read, trying again");
                (self.soonest, self.next) = (ended + ERROR_PAUSE, ended + ERROR_PAUSE);
                0
            }
        }
    }

    /// Adds what may begin, of what a complete scan has found in the order of arrival.
    fn take(&mut self, found: Vec<QueuedEvent>, queues: &mut ObjectQueues) {
        let stored_before = std::mem::take(&mut self.stored);
        // Of each object, the latest event that was stored before the scan began.
        let mut until: HashMap<Object, u64> = HashMap::new();
        for event in found.iter().filter(|event| stored_before.contains(&event.id)) {
            let until = until.entry(event.object.clone()).or_default();
            *until = event.arrived_us.max(*until);
        }
        self.is_complete = queues.len() < EVENTS_MAX;
        for event in found {
            let may_begin = !self.is_shared
                || matches!(event.object, Object::Alone(_))
                || until.get(&event.object).is_some_and(|until| event.arrived_us <= *until);
            if !may_begin {
                self.stored.insert(event.id);
            } else if queues.len() < EVENTS_MAX {
                queues.add(event);
            } else {
                self.is_complete = false;
            }
        }
    }
}

/// What is stored and not in the queues, in the order of arrival.
async fn read(onceward: &Onceward, queues: &ObjectQueues) -> Result<Vec<QueuedEvent>> {
    let mut stored: Vec<QueuedEvent> = Vec::new();
    // What a former leader was trying may go from held to waiting meanwhile: held ones are read before and after.
    for state in [State::Held, State::Waiting, State::Held] {
        let filter = Filter::default().with_scope(Scope::SHARED.as_str().to_owned()).with_state(state);
        let mut scan = Scan::new(ScanTarget::Matching(filter), SCAN_PAGE);
        loop {
            let page = onceward.list(&scan).await?;
            for (id, receipt) in &page.found {
                // Most of them.
                if queues.knows(id) {
                    continue;
                }
                if let Some((object, arrived_us)) = place_of(receipt) {
                    stored.push(QueuedEvent { object: object_of(id, object), id: id.clone(), arrived_us });
                }
            }
            match page.next {
                Some(next) => scan = scan.with_after(next),
                None => break,
            }
        }
    }
    stored.sort_by(|one, other| (one.arrived_us, &one.id).cmp(&(other.arrived_us, &other.id)));
    stored.dedup_by(|one, other| one.id == other.id);
    Ok(stored)
}

fn place_of(receipt: &Receipt) -> Option<(Option<String>, u64)> {
    StoredEvent::place(&receipt.status.job()?.input)
}

#[cfg(test)]
#[path = "event_scan_test.rs"]
mod tests;
