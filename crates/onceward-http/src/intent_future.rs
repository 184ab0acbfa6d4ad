//! The future that runs an intent, the second part of a guarded request. It runs in the caller's task. If the caller
//! drops it, it continues in a task of its own, so a client that disconnects cancels nothing. A response too large to
//! be kept is also sent from such a task while it arrives.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::Response;

use crate::body::ResponseBody;
use crate::guard::InFlight;

pub(crate) type ServiceResult<B, E> = Result<Response<ResponseBody<B>>, E>;

/// The run of an intent. Its answer is `None` if the caller has it already, or is gone.
type Work<B, E> = Pin<Box<dyn Future<Output = Option<ServiceResult<B, E>>> + Send>>;

pub(crate) struct IntentFuture<B, E> {
    /// `None` once it ended, was moved to a task, or panicked.
    work: Option<Work<B, E>>,
    slot: Arc<ResponseSlot<B>>,
    /// [`detach`], stored as a function pointer because `Drop` cannot have its trait bounds.
    detach: fn(&ResponseSlot<B>, Work<B, E>),
}

/// What the running work shares with the caller that waits for its answer.
pub(crate) struct ResponseSlot<B> {
    pub(crate) in_flight: InFlight,
    head: Mutex<LiveHead<B>>,
}

/// The head of a response that is sent while it arrives.
enum LiveHead<B> {
    /// There is none yet.
    Awaited,
    There(Box<Response<ResponseBody<B>>>),
    /// The caller is gone, or has it already.
    Unwanted,
}

impl<B: Send + 'static, E: 'static> IntentFuture<B, E> {
    pub(crate) fn new<F>(in_flight: InFlight, work: impl FnOnce(Arc<ResponseSlot<B>>) -> F) -> Self
    where
        F: Future<Output = Option<ServiceResult<B, E>>> + Send + 'static,
    {
        let slot = Arc::new(ResponseSlot { in_flight, head: Mutex::new(LiveHead::Awaited) });
        // Written to its place, which copies it once; `Box::pin` would copy it twice, and it is large.
        let work = Box::write(Box::new_uninit(), work(slot.clone()));
        Self { work: Some(Box::into_pin(work)), slot, detach }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ServiceResult<B, E>> {
        // Taken out while it is polled: a future that panicked must not be polled again.
        let mut work = self.work.take().expect("polled again after it was ready");
        match work.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer.expect("the caller waits for it")),
            Poll::Pending => match self.slot.take_head() {
                Some(head) => {
                    (self.detach)(&self.slot, work);
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

impl<B> ResponseSlot<B> {
    /// Offers the head of a response that is sent while it arrives.
    pub(crate) fn offer(&self, head: Response<ResponseBody<B>>) {
        let mut slot = self.lock();
        if let LiveHead::Awaited = *slot {
            *slot = LiveHead::There(Box::new(head));
        }
        // Otherwise it is dropped here, with the receiver of its body.
    }

    /// The head, for its caller.
    pub(crate) fn take_head(&self) -> Option<Response<ResponseBody<B>>> {
        let mut slot = self.lock();
        match std::mem::replace(&mut *slot, LiveHead::Awaited) {
            LiveHead::There(head) => {
                *slot = LiveHead::Unwanted;
                Some(*head)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveHead<B>> {
        // Only the drop of a body can panic under the lock, and that leaves the state valid.
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the work to a task of its own.
fn detach<B: Send + 'static, E: 'static>(slot: &ResponseSlot<B>, work: Work<B, E>) {
    slot.in_flight.onceward().spawn(Box::pin(async { drop(work.await) }));
}

impl<B, E> Drop for IntentFuture<B, E> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        *self.slot.lock() = LiveHead::Unwanted;
        (self.detach)(&self.slot, work);
    }
}
