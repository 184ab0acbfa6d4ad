//! The second part of a guarded request: the intent runs, in the caller's own task as long as the caller
//! is there. A caller that goes away leaves it behind in a task of its own, so a client that hangs up
//! cancels nothing; and a response too large to be kept is passed on from such a task while it comes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::Response;

use crate::body::ResponseBody;
use crate::guard::Ticket;

pub(crate) type Answered<B, E> = Result<Response<ResponseBody<B>>, E>;

/// How the running of an intent ends.
pub(crate) enum Ended<B, E> {
    /// With an answer that nobody has yet.
    Answer(Answered<B, E>),
    /// Its response was passed on while it came: its head is in the [`Link`].
    Live,
}

type Work<B, E> = Pin<Box<dyn Future<Output = Ended<B, E>> + Send>>;

pub(crate) struct Running<B, E> {
    /// Absent once it ended, was left to a task, or panicked.
    work: Option<Work<B, E>>,
    link: Arc<Link<B>>,
    /// [`leave`], as it is known where all bounds are: a drop can have none.
    leave: fn(&Link<B>, Work<B, E>),
}

/// What the running work and whoever waits for its answer have in common.
pub(crate) struct Link<B> {
    pub(crate) ticket: Ticket,
    head: Mutex<Head<B>>,
}

/// The head of a response that is passed on while it comes.
enum Head<B> {
    /// There is none so far.
    Awaited,
    There(Box<Response<ResponseBody<B>>>),
    /// Nobody waits for it.
    Unwanted,
}

impl<B: Send + 'static, E: 'static> Running<B, E> {
    pub(crate) fn new<F>(ticket: Ticket, work: impl FnOnce(Arc<Link<B>>) -> F) -> Self
    where
        F: Future<Output = Ended<B, E>> + Send + 'static,
    {
        let link = Arc::new(Link { ticket, head: Mutex::new(Head::Awaited) });
        Self { work: Some(Box::pin(work(link.clone()))), link, leave }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answered<B, E>> {
        // Taken out while it is polled: work that panicked must not be polled again by anybody.
        let mut work = self.work.take().expect("polled again after it was ready");
        match work.as_mut().poll(cx) {
            Poll::Ready(Ended::Answer(answer)) => Poll::Ready(answer),
            Poll::Ready(Ended::Live) => {
                Poll::Ready(Ok(self.link.take_head().expect("a live response has a head")))
            }
            Poll::Pending => match self.link.take_head() {
                Some(head) => {
                    (self.leave)(&self.link, work);
                    Poll::Ready(Ok(head))
                }
                None => {
                    self.work = Some(work);
                    Poll::Pending
                }
            },
        }
    }
}

impl<B> Link<B> {
    /// Offers the head of a response that is passed on while it comes.
    pub(crate) fn offer(&self, head: Response<ResponseBody<B>>) {
        let mut slot = self.lock();
        if let Head::Awaited = *slot {
            *slot = Head::There(Box::new(head));
        }
        // Otherwise it is dropped here, and with it the end of the channel that nobody would read.
    }

    fn take_head(&self) -> Option<Response<ResponseBody<B>>> {
        let mut slot = self.lock();
        match std::mem::replace(&mut *slot, Head::Awaited) {
            Head::There(head) => {
                *slot = Head::Unwanted;
                Some(*head)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Head<B>> {
        // Nothing panics under the lock but a drop of somebody's body, which leaves the slot whole.
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves the work to a task.
fn leave<B: Send + 'static, E: 'static>(link: &Link<B>, work: Work<B, E>) {
    link.ticket.onceward().spawn(Box::pin(async { drop(work.await) }));
}

impl<B, E> Drop for Running<B, E> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        *self.link.lock() = Head::Unwanted;
        (self.leave)(&self.link, work);
    }
}
