//! The embedded store: receipts in a folder of this machine, for one process at a time, durable before
//! any answer. fjall stores the rows; this module adds the checks that make it a durable record.
//!
//! The [front page of this crate](crate) says what is in the folder, what each error means and what to do
//! about it. In short: a folder that is refused was not changed; after a crash or
//! a full disk a restart is enough; after damage, restore a copy of the whole folder, and such a copy
//! may only be made while the folder is closed ([`EmbeddedStore::close`]).
//!
//! | [`ErrorKind`] | on opening | later |
//! |---|---|---|
//! | `InUse` | another process has the folder open | |
//! | `Foreign` | a folder of another program, or another format | |
//! | `Damaged` | acknowledged receipts cannot be read back; restore | one receipt cannot be read: that id's failure |
//! | `Full` | the disk is full | the disk is full: no further writes until 8 MiB are free, reads continue |
//! | `Unavailable` | the system refused | a write failed: no further writes until a restart, reads continue |
//! | `Overloaded` | | a queue is full; nothing was written, retry later |
//!
//! | file | idea |
//! |---|---|
//! | `folder.rs` | the marker of the folder, and its lock |
//! | `journal.rs`, `acked_file.rs`, `group_record.rs` | nothing acknowledged may be lost unnoticed |
//! | `next_journal.rs` | a start does not read what an earlier one has read |
//! | `tables.rs`, `row.rs` | what is stored in fjall |
//! | `queue.rs`, `group.rs`, `writer.rs` | many batches written with one sync |
//! | `held_rows.rs`, `held_block.rs` | what is held, and when its leases end |
//! | `due_scan.rs`, `row_block.rs` | what else falls due when |
//! | `index.rs` | unknown and dead receipts, and steps |
//! | `reader.rs` | loads and scans |
//! | `reopen.rs` | the folder while it is open, and opening it again after the disk was full |

mod acked_file;
mod due_scan;
mod errors;
mod folder;
mod group;
mod group_record;
mod held_block;
mod held_rows;
mod index;
mod journal;
mod next_journal;
mod open;
mod queue;
mod reader;
mod reopen;
mod row;
mod row_block;
mod tables;
mod writer;

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use onceward::{
    Caps, Choose, Clock, Error, ErrorKind, Hints, Id, Loaded, Page, Promises, Result, Scan, State, Store,
    StoreFuture, Swap, Swapped, Watch,
};
use tokio::sync::oneshot;

use self::due_scan::Floor;
use self::folder::Folder;
use self::held_rows::LeaseEnds;
use self::reopen::Slot;
use self::row::{OpenedAt, Row};
use self::tables::{MemoryLimits, Tables};
use self::writer::WriterStopped;
use crate::kit::groups::GroupSizes;
use crate::kit::now_us;
use crate::kit::signals::Broadcaster;

pub use crate::kit::groups::GroupCommits;

/// Longest encoded receipt, in bytes. fjall ends the process's writer over a value of 4 GiB.
const RECEIPT_BYTES_MAX: usize = 2 << 30;

/// Loads that may wait for the reader, and scans that may wait for the scanner.
const QUESTIONS_MAX: usize = 1024;

/// How to open an [`EmbeddedStore`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Memory for rows not yet written to tables; a few times this is in use under load. Fixed when the
    /// folder is created.
    pub write_buffer_bytes: u64,
    /// Tells the time. `None`: the machine's clock, but not its jumps: time continues from the last time that the
    /// folder has seen.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 128 << 20, write_buffer_bytes: 64 << 20, clock: None }
    }
}

impl Options {
    /// Sets how much memory is used for blocks read from disk, in bytes.
    pub fn with_cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets how much memory is used for rows not yet written to tables, in bytes. It counts when the folder is
    /// created.
    pub fn with_write_buffer_bytes(mut self, bytes: u64) -> Self {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Sets the clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("cache_bytes", &self.cache_bytes)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .finish_non_exhaustive()
    }
}

/// Receipts in a folder.
///
/// Dropping it ends its threads and closes the folder before the drop returns, which under load takes a
/// second or two; where a thread must not wait, use [`EmbeddedStore::close`]. Dropping a future of its
/// methods does not cancel the call: a swap still happens, except for what comes after the first 8 MiB or
/// 4096 swaps of its batch.
pub struct EmbeddedStore {
    slot: Arc<Slot>,
    signals: Arc<Broadcaster>,
    sizes: Arc<GroupSizes>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}

/// What outlives an opening of the folder within this process.
#[derive(Clone)]
struct Lasting {
    clock: Arc<dyn Clock>,
    /// The first one of this process: its own runs are alive, also after the folder was opened again.
    opened: OpenedAt,
    memory: MemoryLimits,
    signals: Arc<Broadcaster>,
    sizes: Arc<GroupSizes>,
    slot: Weak<Slot>,
}

/// What the threads share.
struct EmbeddedInner {
    lasting: Lasting,
    lease_ends: LeaseEnds,
    /// By list of the due index.
    floors: [Floor; 2],
    stopped: OnceLock<WriterStopped>,
    tables: Tables,
    /// Dropped after the tables: unlocked only when they are closed.
    folder: Folder,
}

impl EmbeddedInner {
    fn now_us(&self) -> u64 {
        now_us(&*self.lasting.clock)
    }

    fn opened(&self) -> OpenedAt {
        self.lasting.opened
    }

    /// The row of this id.
    ///
    /// The tables are not read at one moment, and need not be. If it was held when memory was asked, its row in `held` is
    /// read; if it was not, its row in `receipts` is what it was at that moment or became since: a claim does not change
    /// that row. A block of held rows is removed only after memory says that its rows have ended.
    fn row(&self, id: &Id) -> Result<Option<Row>> {
        let mut before = None;
        while let Some(location) = self.lease_ends.location(id) {
            if let Some(row) = self.tables.held_row(id, location)? {
                return Ok(Some(row));
            }
            if before.replace(location) == Some(location) {
                return Err(tables::missing_claim(id));
            }
        }
        self.tables.row_unless_held(id)
    }

    fn refuse_unknown(&self, id: &Id) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |stopped| stopped.refuse_unknown(id))
    }
}

impl EmbeddedStore {
    /// Opens the folder, or creates it if it is missing or empty. A folder that is foreign, in
    /// use, of another format or damaged is refused and left as it was.
    ///
    /// The process that had it open before has ended, and so have its runs: what was held with
    /// [`ends_with_writer`](onceward::Record::ends_with_writer) is due at once. Everything else keeps its
    /// lease.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let (reply, opened) = oneshot::channel();
        let work = move || {
            let _ = reply.send(open::open(&path, options));
        };
        spawn("open", work)?;
        opened.await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Damaged,
                "opening the database ended in a panic, which points to damaged files; restore the folder from a copy",
            ))
        })
    }

    /// Closes the folder as dropping does, but without holding up the caller's thread: fjall first ends
    /// what it is writing in the background, which takes a second or two under load. When this returns,
    /// the folder may be copied or opened again. Dropping the future leaves the closing to finish by
    /// itself.
    pub async fn close(self) -> Result<()> {
        let (reply, closed) = oneshot::channel();
        let work = move || {
            drop(self);
            let _ = reply.send(());
        };
        spawn("close", work)?;
        closed.await.map_err(|_| ended())
    }

    /// The sizes of the groups written so far.
    pub fn group_commits(&self) -> GroupCommits {
        self.sizes.read()
    }

    /// What [`groups`](Self::groups) reads; it does not keep the folder open.
    pub(crate) fn sizes(&self) -> Arc<GroupSizes> {
        Arc::clone(&self.sizes)
    }

    async fn swap_part(&self, part: &[Swap]) -> Result<Vec<Swapped>> {
        let (reply, answer) = oneshot::channel();
        self.slot.swap(writer::WriteRequest { batch: part.to_vec(), reply })?;
        answer.await.unwrap_or_else(|_| Err(ended().maybe_applied()))
    }
}

impl Store for EmbeddedStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            if !batch.is_sorted_by(|one, next| one.id < next.id) {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "a batch must be sorted by id and name no id twice",
                ));
            }
            let (part, mut rest) = writer::split_group(batch);
            let mut swapped = self.swap_part(part).await?;
            while !rest.is_empty() {
                let (part, behind) = writer::split_group(rest);
                // Some of the batch has happened by now.
                swapped.extend(self.swap_part(part).await.map_err(Error::maybe_applied)?);
                rest = behind;
            }
            Ok(swapped)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.slot.load(reader::ReadRequest { query: ids.to_vec(), reply })?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.slot.scan(reader::ReadRequest { query: query.clone(), reply })?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    /// Of the writes of this process, which are all there are.
    fn watch(&self) -> Option<Watch> {
        Some(self.signals.watch())
    }

    fn caps(&self) -> Caps {
        let promises =
            Promises::default().with_durable(true).with_atomic(true).with_record_bytes_max(RECEIPT_BYTES_MAX);
        let hints = Hints::default().with_batches_in_flight(2).with_batches_internally(true);
        Caps::new("embedded", promises).with_hints(hints)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.slot.close();
    }
}

fn receipt_bytes(swap: &Swap) -> usize {
    swap.new.as_ref().map_or(0, |new| new.bytes.len())
}

fn full() -> Error {
    Error::new(ErrorKind::Overloaded, "too many batches wait for the embedded store; retry later")
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "a thread of the embedded store has ended; restart the process")
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("onceward-{name}"))
        .spawn(work)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot start a thread").caused_by(error))
}

#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod unreadable_test;
