//! The one thread that writes: takes all batches that wait, makes them one group, syncs once, then
//! answers every caller.
//!
//! ```text
//! callers ──▶ queue ──▶ decide (group.rs) ──▶ one fjall batch + sync ──▶ ACKED ──▶ answers
//!               ▲                                     │
//!               └── the next group gathers meanwhile ─┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use fjall::{OwnedWriteBatch, PersistMode};
use hashbrown::HashSet;
use onceward::{Error, ErrorKind, Id, Result, Swap, Swapped};
use tokio::sync::oneshot;

use super::acked::Acked;
use super::due::Floor;
use super::group::{Decided, Group, Place};
use super::held::{Held, HeldChange};
use super::queue::Taker;
use super::record::{GroupRecord, RECORD_KEY};
use super::row::{LISTS, List};
use super::{Shared, block, due, failure, index, receipt_bytes};

/// A group takes no further swap of a batch, and no further batch, once it has this much.
const GROUP_SWAPS_MAX: usize = 4096;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One batch and whom to tell.
pub(crate) struct Ask {
    pub(crate) batch: Vec<Swap>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Swapped>>>,
}

/// Why the store takes no writes any more.
pub(crate) struct Stopped {
    error: Error,
    /// What the failed group was about: on disk it may or may not have happened.
    doubtful: HashSet<Id>,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) held: Held,
    pub(crate) acked: Acked,
    /// Of the last group that was written.
    pub(crate) record: GroupRecord,
    pub(crate) version_max: u64,
    /// Where rows are encoded.
    pub(crate) scratch: Vec<u8>,
}

impl Writer {
    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self, queue: &Taker) {
        let mut asks = Vec::new();
        while queue.take(&mut asks) {
            let mut waiting = asks.drain(..).peekable();
            while waiting.peek().is_some() {
                self.answer(gather(&mut waiting));
            }
        }
        if let Err(error) = self.acked.sync() {
            tracing::warn!(%error, "the side file of acknowledged groups could not be synced");
        }
    }

    fn answer(&mut self, asks: Vec<Ask>) {
        let shared = Arc::clone(&self.shared);
        shared.sizes.add(asks.iter().map(|ask| ask.batch.len()).sum());
        let mut group = Group::new(&shared, &self.held, self.version_max, asks.len());
        let decided: Vec<Decided> = asks.iter().map(|ask| group.decide(&ask.batch)).collect();
        let kept = if group.is_empty() {
            Ok(())
        } else {
            let (places, version_max) = group.into_changes();
            self.version_max = version_max;
            self.keep(&places)
        };
        for (ask, decided) in asks.into_iter().zip(decided) {
            let answer = match &kept {
                Err(error) if !decided.holds_anyway => Err(error.clone()),
                _ => {
                    shared.signals.announce_won(&ask.batch, &decided.swapped);
                    Ok(decided.swapped)
                }
            };
            // A caller that went away does not mind.
            let _ = ask.reply.send(answer);
        }
    }

    /// Makes the changes durable, then visible.
    fn keep(&mut self, places: &[Place]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let tables = &shared.tables;
        if let Some(stopped) = shared.stopped.get() {
            return Err(stopped.error.clone());
        }
        tables.wait_for_room().map_err(|error| self.stop(error, &[]))?;

        let sequence = self.record.sequence + 1;
        let mut batch = OwnedWriteBatch::with_capacity(tables.database.clone(), places.len() + 8)
            .durability(Some(PersistMode::SyncData));
        let mut held = HeldChange::default();
        let mut due: BTreeMap<(List, u64), Vec<u8>> = BTreeMap::new();
        for place in places.iter().filter(|place| place.changed) {
            let (id, row) = (&place.id, place.row.as_ref());
            self.held.set(id, row, sequence, &mut held);
            index::write(&mut batch, &tables.index, place);
            let Some(row) = row else {
                batch.remove(&tables.receipts, id.as_bytes());
                continue;
            };
            row.encode(id, &mut self.scratch);
            batch.insert(&tables.receipts, id.as_bytes(), &self.scratch[..]);
            if let Some(listed) = row.listed() {
                block::push(due.entry(listed).or_default(), row.version, id);
            }
        }
        if !held.block.is_empty() {
            batch.insert(&tables.held, sequence.to_be_bytes(), &held.block[..]);
        }
        for block in self.held.take_dead() {
            batch.remove(&tables.held, block.to_be_bytes());
        }
        let earliest_us = LISTS.map(|list| {
            let first = due.range((list, 0)..=(list, u64::MAX)).next();
            first.map_or(u64::MAX, |((_, due_us), _)| *due_us)
        });
        for ((list, due_us), block) in due {
            batch.insert(&tables.due, due::block_key(list, due_us, sequence), &block[..]);
        }
        for block in shared.floors.iter().flat_map(Floor::take_dead) {
            batch.remove(&tables.due, block);
        }
        let record = GroupRecord {
            nonce: shared.folder.nonce(),
            sequence,
            version_max: self.version_max,
            floors_us: LISTS.map(|list| shared.floors[list as usize].with(earliest_us[list as usize])),
            held_from: self.held.first_block(sequence),
            engine_number: tables.database.seqno(),
        };
        // Last, so that the journal check finds it at the end of the group.
        batch.insert(&tables.groups, RECORD_KEY, record.encode());
        batch.commit().map_err(|error| self.stop(error, places))?;

        self.record = record;
        shared.lease_ends.apply(held);
        for (floor, earliest_us) in shared.floors.iter().zip(earliest_us) {
            floor.lower(earliest_us);
        }
        if let Err(error) = self.acked.note(record.sequence) {
            // The group itself is safe; only the alarm for later damage is less sharp.
            tracing::warn!(%error, "the side file of acknowledged groups could not be written");
        }
        Ok(())
    }

    /// After a failed write or sync nobody can say what is on disk until the journal is read again, so
    /// this store takes no further writes.
    fn stop(&self, error: fjall::Error, places: &[Place]) -> Error {
        // fjall says this before it writes anything.
        let untouched = matches!(error, fjall::Error::Poisoned) || places.is_empty();
        let mut error = failure::engine(
            "the embedded store stopped after a failed write: restart after freeing space or repairing the disk",
            error,
        );
        if error.kind() != ErrorKind::Full && !self.shared.folder.has_room() {
            error = Error::new(
                ErrorKind::Full,
                "the embedded store stopped because the disk is full: restart after freeing space",
            );
        }
        tracing::error!(%error, "no further writes");
        let doubtful = if untouched { HashSet::new() } else { changed_ids(places) };
        let _ = self.shared.stopped.set(Stopped { error: error.clone(), doubtful });
        if untouched { error } else { error.maybe_applied() }
    }
}

impl Stopped {
    /// Fails if the disk and the memory may disagree about this id.
    pub(crate) fn refuse_doubtful(&self, id: &Id) -> Result<()> {
        if self.doubtful.contains(id) { Err(self.error.clone()) } else { Ok(()) }
    }
}

fn changed_ids(places: &[Place]) -> HashSet<Id> {
    places.iter().filter(|place| place.changed).map(|place| place.id.clone()).collect()
}

/// As many as make one group, at least one if there is one.
fn gather(waiting: &mut impl Iterator<Item = Ask>) -> Vec<Ask> {
    let mut size = Size::default();
    let mut group = Vec::with_capacity(waiting.size_hint().0);
    while !size.is_full()
        && let Some(ask) = waiting.next()
    {
        ask.batch.iter().for_each(|swap| size.add(swap));
        group.push(ask);
    }
    group
}

/// Splits off what one group takes, so that a huge batch neither holds up everybody else nor has to be in
/// fjall's memory as a whole.
pub(crate) fn split_group(batch: &[Swap]) -> (&[Swap], &[Swap]) {
    let mut size = Size::default();
    let fits = batch.iter().take_while(|swap| {
        let fits = !size.is_full();
        size.add(swap);
        fits
    });
    batch.split_at(fits.count())
}

#[derive(Default)]
struct Size {
    swaps: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, swap: &Swap) {
        self.swaps += 1;
        self.bytes += receipt_bytes(swap);
    }

    fn is_full(&self) -> bool {
        self.swaps >= GROUP_SWAPS_MAX || self.bytes >= GROUP_BYTES_MAX
    }
}
