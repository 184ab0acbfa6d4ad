//! The writer thread: takes all waiting batches, writes them as one group with one sync, then answers every caller.
//!
//! ```text
//! callers ──▶ queue ──▶ decide (group.rs) ──▶ one fjall batch + sync ──▶ ACKED ──▶ answers
//!               ▲                                     │
//!               └── the next batches queue up here ───┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use fjall::{OwnedWriteBatch, PersistMode};
use hashbrown::HashSet;
use onceward::{Error, ErrorKind, Id, Result, State, Swap, Swapped};
use tokio::sync::oneshot;

use super::acked_file::AckedFile;
use super::due_scan::Floor;
use super::group::{BatchDecision, Group, GroupEntry};
use super::group_record::{GroupRecord, RECORD_KEY};
use super::held_rows::HeldRows;
use super::queue::QueueReceiver;
use super::row::{DUE_LISTS, DueList};
use super::{EmbeddedInner, due_scan, errors, index, receipt_bytes, reopen, row_block};

/// A group takes no further swap of a batch, and no further batch, once it has this much.
const GROUP_SWAPS_MAX: usize = 4096;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One batch and where to send the answers.
pub(crate) struct WriteRequest {
    pub(crate) batch: Vec<Swap>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Swapped>>>,
}

/// Why the store no longer takes writes.
pub(crate) struct WriterStopped {
    error: Error,
    /// The ids in the failed group, whose outcome on disk is unknown.
    unknown_ids: HashSet<Id>,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<EmbeddedInner>,
    pub(crate) held: HeldRows,
    pub(crate) acked: AckedFile,
    /// Of the last group that was written.
    pub(crate) record: GroupRecord,
    pub(crate) version_max: u64,
    /// Where rows are encoded.
    pub(crate) scratch: Vec<u8>,
}

impl Writer {
    /// Works until the store is closed and the queue is empty.
    pub(crate) fn run(mut self, queue: &QueueReceiver) {
        let mut requests = Vec::new();
        while queue.take(&mut requests) {
            let mut waiting = requests.drain(..).peekable();
            while waiting.peek().is_some() {
                self.answer(next_group(&mut waiting));
            }
        }
        if let Err(error) = self.acked.sync() {
            tracing::warn!(%error, "the side file of acknowledged groups could not be synced");
        }
    }

    fn answer(&mut self, requests: Vec<WriteRequest>) {
        let shared = Arc::clone(&self.shared);
        shared.lasting.sizes.add(requests.iter().map(|request| request.batch.len()).sum());
        let mut group = Group::new(&shared, &self.held, self.version_max, requests.len());
        let decided: Vec<BatchDecision> =
            requests.iter().map(|request| group.decide(&request.batch)).collect();
        let written = if group.is_empty() {
            Ok(())
        } else {
            let (entries, version_max) = group.into_changes();
            self.version_max = version_max;
            self.write_group(&entries)
        };
        for (request, decided) in requests.into_iter().zip(decided) {
            let answer = match &written {
                Err(error) if !decided.holds_without_write => Err(error.clone()),
                _ => {
                    shared.lasting.signals.announce_won(&request.batch, &decided.swapped);
                    Ok(decided.swapped)
                }
            };
            // The caller may have gone away.
            let _ = request.reply.send(answer);
        }
    }

    /// Makes the changes durable, then visible.
    fn write_group(&mut self, entries: &[GroupEntry]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let tables = &shared.tables;
        if let Some(stopped) = shared.stopped.get() {
            return Err(stopped.error.clone());
        }
        tables.wait_for_space().map_err(|error| self.stop(error, &[]))?;

        let sequence = self.record.sequence + 1;
        let mut batch = OwnedWriteBatch::with_capacity(tables.database.clone(), entries.len() + 8)
            .durability(Some(PersistMode::SyncData));
        let mut held = self.held.begin(sequence);
        let mut due: BTreeMap<(DueList, u64), Vec<u8>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.changed) {
            let (id, row) = (&entry.id, entry.row.as_ref());
            index::write(&mut batch, &tables.index, entry);
            if let Some(row) = row {
                row.encode(id, &mut self.scratch);
                if row.state == State::Held {
                    // It leaves the row in `receipts` that it replaces (`held_rows.rs`).
                    self.held.hold(id, row, &self.scratch, &mut held);
                    continue;
                }
            }
            self.held.end(id, &mut held);
            let Some(row) = row else {
                batch.remove(&tables.receipts, id.as_bytes());
                continue;
            };
            batch.insert(&tables.receipts, id.as_bytes(), &self.scratch[..]);
            if let Some(listed) = row.listed() {
                row_block::push(due.entry(listed).or_default(), row.version, id);
            }
        }
        held.write(&mut batch, tables);
        let earliest_us = DUE_LISTS.map(|list| {
            let first = due.range((list, 0)..=(list, u64::MAX)).next();
            first.map_or(u64::MAX, |((_, due_us), _)| *due_us)
        });
        for ((list, due_us), block) in due {
            batch.insert(&tables.due, due_scan::block_key(list, due_us, sequence), &block[..]);
        }
        for block in shared.floors.iter().flat_map(Floor::take_dead) {
            batch.remove(&tables.due, block);
        }
        let record = GroupRecord {
            nonce: shared.folder.nonce(),
            sequence,
            version_max: self.version_max,
            floors_us: DUE_LISTS.map(|list| shared.floors[list as usize].with(earliest_us[list as usize])),
            held_from: self.held.first_group(sequence),
            engine_number: tables.database.seqno(),
        };
        // Last, so that the journal check finds it at the end of the group.
        batch.insert(&tables.groups, RECORD_KEY, record.encode());
        batch.commit().map_err(|error| self.stop(error, entries))?;

        self.record = record;
        shared.lease_ends.apply(held);
        for (floor, earliest_us) in shared.floors.iter().zip(earliest_us) {
            floor.lower(earliest_us);
        }
        if let Err(error) = self.acked.note(record.sequence) {
            // The group itself is durable; only the later check for damage is weaker.
            tracing::warn!(%error, "the side file of acknowledged groups could not be written");
        }
        Ok(())
    }

    /// After a failed write or sync it is unknown what is on disk until the journal is read again, so
    /// this store takes no further writes. If the disk was full, it is read again when there is space.
    fn stop(&self, error: fjall::Error, entries: &[GroupEntry]) -> Error {
        // fjall says this before it writes anything.
        let untouched = matches!(error, fjall::Error::Poisoned) || entries.is_empty();
        let mut error = errors::engine(
            "the embedded store stopped after a failed write: repair the disk and restart",
            error,
        );
        let is_full = error.kind() == ErrorKind::Full || !self.shared.folder.has_space();
        if is_full {
            error = Error::new(
                ErrorKind::Full,
                "the embedded store stopped because the disk is full: free at least 8 MiB, and it continues automatically",
            );
        }
        tracing::error!(%error, "no further writes");
        let unknown_ids = if untouched { HashSet::new() } else { changed_ids(entries) };
        let _ = self.shared.stopped.set(WriterStopped { error: error.clone(), unknown_ids });
        if is_full {
            reopen::start(&self.shared);
        }
        if untouched { error } else { error.maybe_applied() }
    }
}

impl WriterStopped {
    /// Fails if the disk and the memory may disagree about this id.
    pub(crate) fn refuse_unknown(&self, id: &Id) -> Result<()> {
        if self.unknown_ids.contains(id) { Err(self.error.clone()) } else { Ok(()) }
    }
}

fn changed_ids(entries: &[GroupEntry]) -> HashSet<Id> {
    entries.iter().filter(|entry| entry.changed).map(|entry| entry.id.clone()).collect()
}

/// The requests that make up the next group; at least one if there is one.
fn next_group(waiting: &mut impl Iterator<Item = WriteRequest>) -> Vec<WriteRequest> {
    let mut size = GroupSize::default();
    let mut group = Vec::with_capacity(waiting.size_hint().0);
    while !size.is_full()
        && let Some(request) = waiting.next()
    {
        request.batch.iter().for_each(|swap| size.add(swap));
        group.push(request);
    }
    group
}

/// Splits off what one group takes, so that a huge batch neither delays all others nor has to fit into
/// fjall's memory as a whole.
pub(crate) fn split_group(batch: &[Swap]) -> (&[Swap], &[Swap]) {
    let mut size = GroupSize::default();
    let fits = batch.iter().take_while(|swap| {
        let fits = !size.is_full();
        size.add(swap);
        fits
    });
    batch.split_at(fits.count())
}

#[derive(Default)]
struct GroupSize {
    swaps: usize,
    bytes: usize,
}

impl GroupSize {
    fn add(&mut self, swap: &Swap) {
        self.swaps += 1;
        self.bytes += receipt_bytes(swap);
    }

    fn is_full(&self) -> bool {
        self.swaps >= GROUP_SWAPS_MAX || self.bytes >= GROUP_BYTES_MAX
    }
}
