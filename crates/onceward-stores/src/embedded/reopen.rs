//! The folder while it is open, and opening it again after the disk was full.
//!
//! After a failed write only the files can tell what was written. The folder is closed and read again as after a restart,
//! with two differences: it stays locked, and the runs of this process are still alive.
//!
//! ```text
//! open ──the disk is full──▶ open, refuses writes ──8 MiB are free──▶ reopening ──▶ open
//! ```

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};

use super::queue::{QueueRefusal, QueueSender};
use super::reader::{LoadRequest, ScanRequest};
use super::writer::WriteRequest;
use super::{EmbeddedInner, ended, full, open, spawn};

/// How often a full disk is tried again.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// An open folder and its threads. Dropping it ends the threads, which finish what waits, and closes the folder.
pub(crate) struct OpenFolder {
    pub(crate) swaps: Option<QueueSender>,
    pub(crate) loads: Option<mpsc::SyncSender<LoadRequest>>,
    pub(crate) scans: Option<mpsc::SyncSender<ScanRequest>>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// Last, so that the folder is released after everything else, by the thread that closes it.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is kept, and dropped last"))]
    pub(crate) shared: Arc<EmbeddedInner>,
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        // Without senders the threads finish what waits and end.
        (self.swaps, self.loads, self.scans) = (None, None, None);
        join(self.threads.drain(..));
    }
}

/// An executor that has shut down drops the task that an answer wakes, and with it perhaps the last handle of the store:
/// on the thread that answered, which cannot join itself.
fn join(threads: impl Iterator<Item = JoinHandle<()>>) {
    let here = std::thread::current().id();
    for thread in threads.filter(|thread| thread.thread().id() != here) {
        // The callers of a thread that panicked have already been told.
        let _ = thread.join();
    }
}

/// Where the open folder is. Calls of the store only read it, so that they do not wait for each other.
#[derive(Default)]
pub(crate) struct Slot(RwLock<SlotState>);

#[derive(Default)]
struct SlotState {
    /// `None` while it is being opened again, and once it is closed.
    open: Option<OpenFolder>,
    is_closed: bool,
    /// The thread that opens it again.
    reopener: Option<JoinHandle<()>>,
}

impl Slot {
    pub(crate) fn set(&self, open: OpenFolder) {
        self.lock().open = Some(open);
    }

    pub(crate) fn swap(&self, request: WriteRequest) -> Result<()> {
        let put = self.with_open(|open| open.swaps.as_ref().map(|swaps| swaps.put(request)))?;
        put.map_err(|refused| match refused {
            QueueRefusal::Full => full(),
            QueueRefusal::Closed => ended(),
        })
    }

    pub(crate) fn load(&self, request: LoadRequest) -> Result<()> {
        self.with_open(|open| open.loads.as_ref().map(|loads| sent(loads.try_send(request))))?
    }

    pub(crate) fn scan(&self, request: ScanRequest) -> Result<()> {
        self.with_open(|open| open.scans.as_ref().map(|scans| sent(scans.try_send(request))))?
    }

    fn with_open<T>(&self, ask: impl FnOnce(&OpenFolder) -> Option<T>) -> Result<T> {
        match &self.read().open {
            Some(open) => ask(open).ok_or_else(ended),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "the embedded store is being opened again after its disk was full; retry in a second",
            )),
        }
    }

    /// Closes the folder for good. When this returns, it is released.
    pub(crate) fn close(&self) {
        let (open, reopener) = {
            let mut state = self.lock();
            state.is_closed = true;
            (state.open.take(), state.reopener.take())
        };
        drop(open);
        if let Some(reopener) = reopener {
            reopener.thread().unpark();
            join([reopener].into_iter());
        }
    }

    /// The tables, for tests that damage them.
    #[cfg(test)]
    pub(super) fn inner(&self) -> Arc<EmbeddedInner> {
        Arc::clone(&self.read().open.as_ref().expect("it is open").shared)
    }

    fn is_closed(&self) -> bool {
        self.read().is_closed
    }

    // Nothing that can panic happens under the lock.

    fn read(&self) -> RwLockReadGuard<'_, SlotState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> RwLockWriteGuard<'_, SlotState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sent<T>(sent: Result<(), mpsc::TrySendError<T>>) -> Result<()> {
    sent.map_err(|refused| match refused {
        mpsc::TrySendError::Full(_) => full(),
        mpsc::TrySendError::Disconnected(_) => ended(),
    })
}

/// Opens the folder again as soon as there is space, on a thread of its own.
pub(crate) fn start(stopped: &Arc<EmbeddedInner>) {
    let Some(slot) = stopped.lasting.slot.upgrade() else { return };
    let mut state = slot.lock();
    if state.is_closed || state.reopener.as_ref().is_some_and(|thread| !thread.is_finished()) {
        return;
    }
    let stopped = Arc::downgrade(stopped);
    let for_thread = Arc::downgrade(&slot);
    match spawn("reopen", move || reopen(&for_thread, &stopped)) {
        Ok(thread) => state.reopener = Some(thread),
        Err(error) => tracing::error!(%error, "the embedded store will not be opened again automatically"),
    }
}

fn reopen(slot: &Weak<Slot>, stopped: &Weak<EmbeddedInner>) {
    let (lasting, folder) = {
        let Some(stopped) = stopped.upgrade() else { return };
        (stopped.lasting.clone(), stopped.folder.clone())
    };
    loop {
        std::thread::park_timeout(TRY_EVERY);
        let Some(slot) = slot.upgrade().filter(|slot| !slot.is_closed()) else { return };
        if !folder.has_space_to_go_on() {
            continue;
        }
        // Callers are refused from here on, and are not kept waiting.
        let open = slot.lock().open.take();
        drop(open);
        match open::open_again(lasting.clone(), folder.clone()) {
            Ok(open) => {
                let mut state = slot.lock();
                if !state.is_closed {
                    state.open = Some(open);
                    tracing::info!("there is space again: the embedded store continues");
                }
                return;
            }
            Err(error) => tracing::error!(%error, "the embedded store cannot be opened again yet"),
        }
    }
}
