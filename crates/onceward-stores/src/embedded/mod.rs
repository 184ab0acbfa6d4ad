//! The embedded store: receipts in a folder of this machine, for one process at a time, durable before
//! any answer. fjall keeps the rows; everything that makes it a record of truth is here.
//!
//! What lies in the folder, what each error means and what to do about it stands on the
//! [front page of this crate](crate). In short: a folder that is refused was not changed; after a crash or
//! a full disk it is enough to start again; damage calls for a copy of the whole folder, and such a copy
//! may only be made while the folder is closed ([`EmbeddedStore::close`]).
//!
//! | [`ErrorKind`] | on opening | later |
//! |---|---|---|
//! | `InUse` | another process has the folder open | |
//! | `Foreign` | somebody else's folder, or a newer format | |
//! | `Damaged` | acknowledged receipts cannot be read back; restore | the same, met while reading |
//! | `Full` | no room to begin with | no room: no further writes until a restart, reads go on |
//! | `Unavailable` | the system said no | a write failed: no further writes until a restart, reads go on |
//! | `Overloaded` | | a queue is full; nothing was written, come back later |
//!
//! | file | idea |
//! |---|---|
//! | `folder.rs` | whose folder it is, and that nobody else has it |
//! | `journal.rs`, `acked.rs`, `record.rs` | nothing acknowledged may be lost unnoticed |
//! | `tables.rs`, `row.rs` | what lies in fjall |
//! | `queue.rs`, `group.rs`, `writer.rs`, `sizes.rs` | many batches, one sync |
//! | `held.rs`, `due.rs`, `block.rs` | what falls due when |
//! | `reader.rs` | loads and scans |

mod acked;
mod block;
mod due;
mod failure;
mod folder;
mod group;
mod held;
mod journal;
mod open;
mod queue;
mod reader;
mod record;
mod row;
mod sizes;
mod tables;
mod writer;

use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use onceward::{
    Caps, Clock, Error, ErrorKind, Found, Fut, Groups, Id, Page, Result, Scan, Store, Swap, Swapped,
    SystemClock,
};
use tokio::sync::oneshot;

use self::due::Floor;
use self::folder::Folder;
use self::held::LeaseEnds;
use self::queue::{Putter, Refused};
use self::row::Opened;
use self::sizes::Sizes;
use self::tables::Tables;
use self::writer::Stopped;
use crate::now_us;

/// Longest encoded receipt, in bytes. fjall ends the process's writer over a value of 4 GiB.
const RECEIPT_BYTES_MAX: usize = 2 << 30;

/// Loads that may wait for the reader, and scans that may wait for the scanner.
const QUESTIONS_MAX: usize = 1024;

/// How to open an [`EmbeddedStore`].
#[derive(Clone)]
pub struct Options {
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Memory for rows not yet written to tables; a few times this is in use under load. Fixed when the
    /// folder is created.
    pub write_buffer_bytes: u64,
    /// Whether claims from before the folder was opened may still have a living owner.
    pub owners: Owners,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

/// Who runs what is claimed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// Only the process that has the folder open. Whoever opens it next knows that all earlier owners are dead,
    /// and their leases are over at once.
    #[default]
    DieWithTheProcess,
    /// Others, to whom it hands claims: they may go on while it restarts, so a lease lasts as long as it said.
    Outlive,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 128 << 20,
            write_buffer_bytes: 64 << 20,
            owners: Owners::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Receipts in a folder.
///
/// Dropping it ends its threads and closes the folder before the drop returns, which under load takes a
/// second or two; where a thread must not wait, use [`EmbeddedStore::close`]. Dropping a future of its
/// methods does not take back the question: a swap still happens, but for what lies behind the first
/// 8 MiB or 4096 swaps of its batch.
pub struct EmbeddedStore {
    swaps: Option<Putter>,
    loads: Option<mpsc::SyncSender<reader::AskLoad>>,
    scans: Option<mpsc::SyncSender<reader::AskScan>>,
    threads: Vec<JoinHandle<()>>,
    /// Last, so that the folder is let go after everything else.
    shared: Arc<Shared>,
}

/// What the threads have in common.
struct Shared {
    clock: Arc<dyn Clock>,
    opened: Opened,
    lease_ends: LeaseEnds,
    floor: Floor,
    stopped: OnceLock<Stopped>,
    sizes: Sizes,
    tables: Tables,
    /// Dropped behind the tables: unlocked only when they are closed.
    folder: Folder,
}

impl Shared {
    fn now_us(&self) -> u64 {
        now_us(&*self.clock)
    }

    fn refuse_doubtful(&self, id: &Id) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |stopped| stopped.refuse_doubtful(id))
    }
}

impl EmbeddedStore {
    /// Opens the folder, or creates it if it is missing or empty. A folder that is somebody else's, in
    /// use, of a newer format or damaged is refused and left as it was.
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

    async fn swap_part(&self, part: &[Swap]) -> Result<Vec<Swapped>> {
        let (reply, answer) = oneshot::channel();
        let put = self.swaps.as_ref().ok_or_else(ended)?.put(writer::Ask { batch: part.to_vec(), reply });
        put.map_err(|refused| match refused {
            Refused::Full => full(),
            Refused::Closed => ended(),
        })?;
        answer.await.unwrap_or_else(|_| Err(ended().maybe_applied()))
    }
}

impl Store for EmbeddedStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(async move {
            if !batch.is_sorted_by(|one, next| one.id < next.id) {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "a batch must be sorted by id and name no id twice",
                ));
            }
            if batch.iter().any(|swap| receipt_bytes(swap) > RECEIPT_BYTES_MAX) {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("a receipt of more than {RECEIPT_BYTES_MAX} bytes cannot be kept"),
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

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            send(self.loads.as_ref(), reader::Ask { question: ids.to_vec(), reply })?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            send(self.scans.as_ref(), reader::Ask { question: query.clone(), reply })?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn caps(&self) -> Caps {
        Caps {
            name: "embedded",
            durable: true,
            atomic: true,
            shared: false,
            transactions: false,
            batches_in_flight: 2,
            gathers: true,
        }
    }

    fn groups(&self) -> Groups {
        self.shared.sizes.read()
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Without senders the threads finish what waits and end.
        (self.swaps, self.loads, self.scans) = (None, None, None);
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // An executor that is gone drops the task that an answer wakes, and with it perhaps the last
            // handle of the store: on the very thread that answered, which cannot wait for itself.
            if thread.thread().id() != here {
                // A panic in there has already told its callers.
                let _ = thread.join();
            }
        }
    }
}

fn receipt_bytes(swap: &Swap) -> usize {
    swap.new.as_ref().map_or(0, |new| new.bytes.len())
}

fn send<T>(queue: Option<&mpsc::SyncSender<T>>, ask: T) -> Result<()> {
    let sent = queue.ok_or_else(ended)?.try_send(ask);
    sent.map_err(|refused| match refused {
        mpsc::TrySendError::Full(_) => full(),
        mpsc::TrySendError::Disconnected(_) => ended(),
    })
}

fn full() -> Error {
    Error::new(ErrorKind::Overloaded, "too many batches wait for the embedded store; come back later")
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
