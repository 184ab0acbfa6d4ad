//! Which messages a relay reads, sends and removes next. Pure: it decides, `relay.rs` acts.
//!
//! ```text
//! read behind `cursors` ──▶ queue by ordering key ──▶ in flight ──▶ published ──▶ removed
//!                                                        └─ failed: the key's messages are forgotten here. When its
//!                                                           pause is over, its lane is read again from that message
//! ```
//!
//! A key that fails keeps nothing in memory but its pause, so that any number of them holds up no other key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::key_queue::KeyQueue;
use crate::postgres::outbox::OutboxRow;

/// Pauses that are remembered. A key beyond that is tried again when its lane is read from the start.
const FAILING_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// The last position that was read in each lane that this relay has.
    cursors: HashMap<u32, i64>,
    /// Positions that are in memory: queued, in flight, or published and not removed.
    held: HashSet<i64>,
    queue: KeyQueue<OutboxRow>,
    published: Vec<(u32, i64)>,
    failing: HashMap<Arc<str>, Failing>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    until: Instant,
    lane: u32,
    /// The position of the message that failed.
    from: i64,
    /// Its lane is read again; until its message has come and was sent, later ones must wait as before.
    is_due: bool,
}

impl Schedule {
    /// A lane that this relay now has: read from the start.
    pub(super) fn gain(&mut self, lane: u32) {
        self.cursors.insert(lane, 0);
    }

    /// A lane that this relay has no more. What is in flight ends; what is queued is forgotten.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u32) -> bool) {
        self.cursors.retain(|lane, _| !is_lost(*lane));
        self.failing.retain(|_, failing| !is_lost(failing.lane));
        let held = &mut self.held;
        self.queue.remove(|row| is_lost(row.lane) && held.remove(&row.position));
    }

    /// Reads everything from the start again, now and then: nothing depends on a cursor that was wrong.
    pub(super) fn restart(&mut self) {
        self.cursors.values_mut().for_each(|cursor| *cursor = 0);
    }

    /// Where to read on, lane by lane.
    pub(super) fn cursors(&mut self, now: Instant) -> Vec<(u32, i64)> {
        for failing in self.failing.values_mut().filter(|failing| !failing.is_due && failing.until <= now) {
            failing.is_due = true;
            if let Some(cursor) = self.cursors.get_mut(&failing.lane) {
                *cursor = (*cursor).min(failing.from - 1);
            }
        }
        self.cursors.iter().map(|(lane, after)| (*lane, *after)).collect()
    }

    /// Takes in what was read, in the order of the positions within each lane.
    pub(super) fn read(&mut self, rows: Vec<OutboxRow>) {
        for row in rows {
            let Some(cursor) = self.cursors.get_mut(&row.lane) else { continue };
            *cursor = (*cursor).max(row.position);
            let key = key_of(&row);
            // Behind a message that failed nothing is sent before it.
            if self.failing.get(key).is_some_and(|failing| !failing.is_due || row.position < failing.from) {
                continue;
            }
            if self.held.insert(row.position) {
                let key: Arc<str> = key.into();
                self.queue.push(&key, row);
            }
        }
    }

    /// The next message to send. No other of its key is taken before it is published.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Arc<str>, OutboxRow)> {
        self.queue.take(now)
    }

    /// The broker has confirmed it.
    pub(super) fn published(&mut self, key: &Arc<str>, row: &OutboxRow) {
        self.failing.remove(key);
        self.published.push((row.lane, row.position));
        self.queue.done(key);
    }

    /// The broker has refused it, or did not answer. Returns how often that has happened to it.
    pub(super) fn failed(
        &mut self,
        key: &Arc<str>,
        row: &OutboxRow,
        now: Instant,
        pause: impl Fn(u32) -> Duration,
    ) -> u32 {
        let failures = self.failing.get(key).map_or(0, |failing| failing.failures) + 1;
        self.held.remove(&row.position);
        for forgotten in self.queue.forget(key) {
            self.held.remove(&forgotten.position);
        }
        if self.cursors.contains_key(&row.lane) && self.failing.len() < FAILING_MAX {
            let until = now + pause(failures);
            let failing = Failing { failures, until, lane: row.lane, from: row.position, is_due: false };
            self.failing.insert(key.clone(), failing);
        }
        failures
    }

    /// What is to be removed from the outbox.
    pub(super) fn take_to_remove(&mut self) -> Vec<(u32, i64)> {
        std::mem::take(&mut self.published)
    }

    /// It was removed.
    pub(super) fn removed(&mut self, removed: &[(u32, i64)]) {
        for (_, position) in removed {
            self.held.remove(position);
        }
    }

    /// It may not have been removed: try again.
    pub(super) fn not_removed(&mut self, places: Vec<(u32, i64)>) {
        self.published.extend(places);
    }

    /// How many messages are in memory.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn has_to_remove(&self) -> bool {
        !self.published.is_empty()
    }

    /// When the pause of the first failing key is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.failing.values().filter(|failing| !failing.is_due).map(|failing| failing.until).min()
    }
}

/// Messages without an ordering key have no order: each is a key of its own.
fn key_of(row: &OutboxRow) -> &str {
    row.message.ordering_key().unwrap_or(row.message.id())
}

#[cfg(test)]
#[path = "schedule_test.rs"]
mod tests;
