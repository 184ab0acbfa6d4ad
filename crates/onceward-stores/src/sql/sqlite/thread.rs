//! A thread that owns a connection and runs the closures that are sent to it.

use std::sync::mpsc;

use onceward::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

/// The number of calls that may wait for a thread.
const QUEUE_MAX: usize = 1024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Sends work to a thread; the thread ends when this is dropped and its queue is empty.
pub(super) struct ConnectionThread(mpsc::SyncSender<Job>);

impl ConnectionThread {
    pub(super) fn start(name: &str, mut connection: Connection) -> Result<Self> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(QUEUE_MAX);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    job(&mut connection);
                }
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "no thread can be started").caused_by(error)
            })?;
        Ok(Self(jobs))
    }

    /// Runs a closure on the thread, and returns its result. Dropping the future does not undo it.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // The caller may have gone away.
            let _ = reply.send(work(connection));
        });
        self.0.try_send(job).map_err(|_| {
            Error::new(ErrorKind::Overloaded, "too many calls wait for the SQLite file; come back later")
        })?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, "the thread that serves the SQLite file is gone")
                .maybe_applied())
        })
    }
}
