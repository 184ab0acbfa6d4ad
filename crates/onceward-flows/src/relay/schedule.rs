//! Which messages a relay reads, sends and removes next. Pure: it decides, `relay.rs` acts.
//!
//! ```text
//! read behind `cursors` ──▶ queue by ordering key ──▶ in flight ──▶ published ──▶ removed
//!                                                        └─ failed: the key's messages are forgotten here. When its
//!                                                           pause is over, its lane is read again from that message
//! ```
//!
//! A key that fails keeps nothing in memory but its pause, so that many of them hold up no other key. Beyond a bound, its
//! whole lane pauses instead: a key whose failure were forgotten would continue with its next message.
//!
//! A lane with many messages leaves space for the others: once half of the memory is in use, a lane may hold its share only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::key_queue::KeyQueue;
use crate::lane::LANES;
use crate::tables::OutboxRow;

/// Failing keys that are remembered.
const FAILING_MAX: usize = 100_000;
/// Rows of one lane in memory, and in one read.
const LANE_ROWS_MAX: usize = 200;
/// Lanes that a restart takes back at a time: one of this number.
pub(super) const RESTART_SHARES: u32 = 64;
/// Each read begins this many lanes later than the one before; without a common divisor with the number of lanes.
const STRIDE: u32 = 389;

#[derive(Debug)]
pub(super) struct Schedule {
    /// The last position that was read in each lane that this relay has.
    cursors: BTreeMap<u32, i64>,
    /// Lanes whose cursor was set back since the last read began: what that read finds of them is not taken in.
    set_back: HashSet<u32>,
    /// Lanes and positions that are in memory: queued, in flight, or published and not removed. A position is unique in its
    /// lane only.
    held: HashSet<(u32, i64)>,
    /// How many of them each lane has.
    lane_rows: HashMap<u32, usize>,
    queue: KeyQueue<OutboxRow>,
    published: Vec<(u32, i64)>,
    failing: HashMap<Arc<str>, Failing>,
    /// Failing keys by the end of their pause.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// Lanes that pause because too many keys are failing.
    paused: HashMap<u32, PausedLane>,
    failing_max: usize,
    held_max: usize,
    start: u32,
    /// Lanes that were left out of the last read because they have enough, and how much that is.
    full: Vec<u32>,
    per_lane: usize,
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

#[derive(Clone, Copy, Debug)]
struct PausedLane {
    failures: u32,
    /// `None`: it is read again.
    until: Option<Instant>,
}

/// Where to read on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// Lanes, the first ones first, each with the position behind which to begin.
    pub(super) after: Vec<(u32, i64)>,
    /// Most rows of one lane.
    pub(super) per_lane: usize,
}

impl Schedule {
    /// With about this many messages in memory.
    pub(super) fn new(held_max: usize) -> Self {
        Self {
            cursors: BTreeMap::new(),
            set_back: HashSet::new(),
            held: HashSet::new(),
            lane_rows: HashMap::new(),
            queue: KeyQueue::default(),
            published: Vec::new(),
            failing: HashMap::new(),
            due: BTreeSet::new(),
            paused: HashMap::new(),
            failing_max: FAILING_MAX,
            held_max,
            start: 0,
            full: Vec::new(),
            per_lane: LANE_ROWS_MAX,
        }
    }

    /// A lane that this relay now has: read from the start.
    pub(super) fn gain(&mut self, lane: u32) {
        self.cursors.insert(lane, 0);
        self.set_back.insert(lane);
    }

    /// A lane that this relay has no more. What is in flight ends; what is queued is forgotten.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u32) -> bool) {
        self.cursors.retain(|lane, _| !is_lost(*lane));
        self.paused.retain(|lane, _| !is_lost(*lane));
        self.failing.retain(|_, failing| !is_lost(failing.lane));
        let failing = &self.failing;
        self.due.retain(|(_, key)| failing.contains_key(key));
        let (held, lane_rows) = (&mut self.held, &mut self.lane_rows);
        self.queue.remove(|row| is_lost(row.lane) && let_go(held, lane_rows, (row.lane, row.position)));
    }

    /// Reads everything from the start again, now and then and a few lanes at a time: nothing depends on a cursor that was
    /// wrong.
    pub(super) fn restart(&mut self, share: u32) {
        let of_share = |(lane, _): &(&u32, &mut i64)| **lane % RESTART_SHARES == share % RESTART_SHARES;
        for (lane, cursor) in self.cursors.iter_mut().filter(of_share) {
            *cursor = 0;
            self.set_back.insert(*lane);
        }
    }

    /// Where to read on, lane by lane.
    pub(super) fn reads(&mut self, now: Instant) -> Reads {
        self.end_pauses(now);
        self.set_back.clear();
        let per_lane = self.rows_per_lane();
        self.start = (self.start + STRIDE) % LANES;
        let from_start = self.cursors.range(self.start..).chain(self.cursors.range(..self.start));
        let (full, after) = self.full_or_not(from_start, per_lane);
        (self.full, self.per_lane) = (full, per_lane);
        Reads { after, per_lane }
    }

    /// Where to read on in some of the lanes. Those that pause are left to [`reads`](Self::reads).
    pub(super) fn reads_of(&mut self, lanes: &[u32]) -> Reads {
        self.set_back.clear();
        let per_lane = self.rows_per_lane();
        let (full, after) =
            self.full_or_not(lanes.iter().filter_map(|lane| self.cursors.get_key_value(lane)), per_lane);
        self.full.extend(full);
        self.full.sort_unstable();
        self.full.dedup();
        self.per_lane = per_lane;
        Reads { after, per_lane }
    }

    /// Keys and lanes whose pause is over are read again.
    fn end_pauses(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(until, _)| *until <= now) {
            let (_, key) = self.due.pop_first().expect("it was just seen");
            let failing = self.failing.get_mut(&key).expect("what is due is failing");
            failing.is_due = true;
            if let Some(cursor) = self.cursors.get_mut(&failing.lane) {
                *cursor = (*cursor).min(failing.from - 1);
            }
        }
        for paused in self.paused.values_mut() {
            paused.until = paused.until.filter(|until| *until > now);
        }
    }

    /// Most rows of one lane in memory.
    fn rows_per_lane(&self) -> usize {
        let is_crowded = self.held.len() >= self.held_max / 2;
        let share = self.held_max / 2 / self.cursors.len().max(1);
        if is_crowded { share.clamp(1, LANE_ROWS_MAX) } else { LANE_ROWS_MAX }
    }

    /// Those of these lanes that have enough, and where to read on in those that do not.
    fn full_or_not<'a>(
        &self,
        lanes: impl Iterator<Item = (&'a u32, &'a i64)>,
        per_lane: usize,
    ) -> (Vec<u32>, Vec<(u32, i64)>) {
        let is_full = |lane: &u32| self.lane_rows.get(lane).is_some_and(|rows| *rows >= per_lane);
        let pauses = |lane: &u32| self.paused.get(lane).is_some_and(|paused| paused.until.is_some());
        let (full, after): (Vec<_>, Vec<_>) = lanes
            .filter(|(lane, _)| !pauses(lane))
            .map(|(lane, after)| (*lane, *after))
            .partition(|(lane, _)| is_full(lane));
        (full.into_iter().map(|(lane, _)| lane).collect(), after)
    }

    /// Takes in what the last read has found, in the order of the positions within each lane.
    pub(super) fn read(&mut self, rows: Vec<OutboxRow>) {
        for row in rows {
            let Some(cursor) = self.cursors.get_mut(&row.lane) else { continue };
            if self.set_back.contains(&row.lane) {
                continue;
            }
            *cursor = (*cursor).max(row.position);
            let key = key_of(&row);
            // Behind a message that failed nothing is sent before it.
            if self.failing.get(key).is_some_and(|failing| !failing.is_due || row.position < failing.from) {
                continue;
            }
            if self.held.insert((row.lane, row.position)) {
                *self.lane_rows.entry(row.lane).or_default() += 1;
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
        if let Some(failing) = self.failing.remove(key) {
            self.due.remove(&(failing.until, key.clone()));
        }
        if self.paused.get(&row.lane).is_some_and(|paused| paused.until.is_none()) {
            self.paused.remove(&row.lane);
        }
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
        let before = self.failing.get(key).copied();
        let failures = before.map_or(0, |failing| failing.failures) + 1;
        let_go(&mut self.held, &mut self.lane_rows, (row.lane, row.position));
        for forgotten in self.queue.forget(key) {
            let_go(&mut self.held, &mut self.lane_rows, (forgotten.lane, forgotten.position));
        }
        let Some(cursor) = self.cursors.get_mut(&row.lane) else { return failures };
        if before.is_some() || self.failing.len() < self.failing_max {
            let until = now + pause(failures);
            let failing = Failing { failures, until, lane: row.lane, from: row.position, is_due: false };
            if let Some(before) = before {
                self.due.remove(&(before.until, key.clone()));
            }
            self.due.insert((until, key.clone()));
            self.failing.insert(key.clone(), failing);
            return failures;
        }
        // Nothing of the lane comes before this message was read again.
        *cursor = (*cursor).min(row.position - 1);
        self.set_back.insert(row.lane);
        let paused = self.paused.entry(row.lane).or_insert(PausedLane { failures: 0, until: None });
        paused.failures += 1;
        paused.until = paused.until.max(Some(now + pause(paused.failures)));
        paused.failures
    }

    /// What is to be removed from the outbox.
    pub(super) fn take_to_remove(&mut self) -> Vec<(u32, i64)> {
        std::mem::take(&mut self.published)
    }

    /// It was removed.
    pub(super) fn removed(&mut self, removed: &[(u32, i64)]) {
        for place in removed {
            let_go(&mut self.held, &mut self.lane_rows, *place);
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

    /// Whether a lane that was left out of the last read has become short of messages.
    pub(super) fn has_space(&self) -> bool {
        let is_short = |lane: &u32| self.lane_rows.get(lane).is_none_or(|rows| *rows <= self.per_lane / 2);
        self.full.iter().any(is_short)
    }

    /// How many keys are failing.
    pub(super) fn failing(&self) -> usize {
        self.failing.len()
    }

    pub(super) fn has_to_remove(&self) -> bool {
        !self.published.is_empty()
    }

    /// When the first pause is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let lanes = self.paused.values().filter_map(|paused| paused.until);
        self.due.first().map(|(until, _)| *until).into_iter().chain(lanes).min()
    }
}

/// Messages without an ordering key have no order: each is a key of its own.
fn key_of(row: &OutboxRow) -> &str {
    row.message.ordering_key().unwrap_or(row.message.id())
}

/// Forgets a message, and returns whether it was there.
fn let_go(held: &mut HashSet<(u32, i64)>, lane_rows: &mut HashMap<u32, usize>, place: (u32, i64)) -> bool {
    let was_there = held.remove(&place);
    if was_there && let Some(rows) = lane_rows.get_mut(&place.0) {
        *rows -= 1;
        if *rows == 0 {
            lane_rows.remove(&place.0);
        }
    }
    was_there
}

#[cfg(test)]
#[path = "schedule_test.rs"]
mod tests;
