//! A few futures that run side by side in one task: the task that waits on the set drives them all. Nothing is
//! spawned, and dropping the set drops every future in it.
//!
//! Each future has a waker of its own, so a wake-up polls only the futures that were woken. What these then write to
//! the store is sent together.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::group_commit::GroupCommit;
use super::sync::Mutex;

/// What was written leaves after this long at the latest, also if more futures are to be polled.
const PASS_MAX: Duration = Duration::from_millis(5);

pub(crate) struct FutureSet<'a, T> {
    slots: Vec<Slot<'a, T>>,
    /// Slots without a future.
    free: Vec<usize>,
    woken: Arc<Woken>,
    ready: Vec<T>,
    flush: Flush,
}

/// Sends what futures have left in the queue of the group (`SendWhen::OnFlush`), also when one of them panics and when
/// the set is dropped.
struct Flush {
    group_commit: Arc<GroupCommit>,
    after: AfterPass,
}

impl Drop for Flush {
    fn drop(&mut self) {
        if self.after == AfterPass::Flush || std::thread::panicking() {
            self.group_commit.flush();
        }
    }
}

/// Whether what is in the queue is sent after a pass over the futures that were woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterPass {
    Flush,
    /// The caller sends it.
    Keep,
}

/// A slot for one future after another. Its waker outlives them: a late wake-up polls the next one once without need.
struct Slot<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    waker: Waker,
}

/// Which slots have been woken since they were last polled.
struct Woken(Mutex<WokenState>);

#[derive(Default)]
struct WokenState {
    slots: Vec<usize>,
    /// Whether a slot is among them.
    is_woken: Vec<bool>,
    /// The task that drives the set.
    task: Option<Waker>,
}

struct SlotWaker {
    at: usize,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut state = self.woken.0.lock();
            if std::mem::replace(&mut state.is_woken[self.at], true) {
                return; // the task was woken then
            }
            state.slots.push(self.at);
            state.task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<'a, T> FutureSet<'a, T> {
    pub(crate) fn new(group_commit: Arc<GroupCommit>) -> Self {
        let woken = Arc::new(Woken(Mutex::new(WokenState::default())));
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            woken,
            ready: Vec::new(),
            flush: Flush { group_commit, after: AfterPass::Flush },
        }
    }

    /// Adds a future. It is polled for the first time when the set is driven next.
    pub(crate) fn add(&mut self, future: impl Future<Output = T> + Send + 'a) {
        let at = self.free.pop().unwrap_or_else(|| {
            let at = self.slots.len();
            let waker = Arc::new(SlotWaker { at, woken: self.woken.clone() }).into();
            self.slots.push(Slot { future: None, waker });
            self.woken.0.lock().is_woken.push(false);
            at
        });
        self.slots[at].future = Some(Box::pin(future));
        self.slots[at].waker.wake_by_ref();
    }

    /// How many have not finished.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What has finished since this was last called.
    pub(crate) fn ready(&mut self) -> Vec<T> {
        std::mem::take(&mut self.ready)
    }

    /// Waits for something else, and drives the set meanwhile.
    pub(crate) async fn beside<F: Future>(&mut self, other: F) -> F::Output {
        self.flush();
        self.beside_unsent(other).await
    }

    /// The same for something that sends what is in the queue; what comes there meanwhile is sent as usual.
    pub(crate) async fn beside_unsent<F: Future>(&mut self, other: F) -> F::Output {
        let mut other = pin!(other);
        poll_fn(|cx| {
            self.poll(cx, AfterPass::Flush);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Drives the set until something is true. What is in the queue then is left there, for
    /// [`beside_unsent`](Self::beside_unsent).
    pub(crate) async fn until(&mut self, is_true: impl Fn() -> bool) {
        poll_fn(|cx| {
            self.poll(cx, AfterPass::Keep);
            if is_true() {
                return Poll::Ready(());
            }
            self.flush();
            Poll::Pending
        })
        .await;
    }

    /// Sends what is in the queue.
    pub(crate) fn flush(&self) {
        self.flush.group_commit.flush();
    }

    /// Drives the set until fewer than `count` have not finished.
    pub(crate) async fn until_below(&mut self, count: usize) {
        self.flush();
        poll_fn(|cx| {
            self.poll(cx, AfterPass::Flush);
            if self.len() < count { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn poll(&mut self, cx: &mut Context<'_>, after: AfterPass) {
        let woken = {
            let mut state = self.woken.0.lock();
            match &mut state.task {
                Some(task) => task.clone_from(cx.waker()),
                task => *task = Some(cx.waker().clone()),
            }
            state.is_woken.fill(false);
            std::mem::take(&mut state.slots)
        };
        if woken.is_empty() {
            return;
        }
        let flush = Flush { group_commit: self.flush.group_commit.clone(), after };
        let mut since = flush.group_commit.now();
        for at in woken {
            // What one future has written does not wait for the code of another that keeps the thread.
            if flush.group_commit.now().saturating_sub(since) > PASS_MAX {
                flush.group_commit.flush();
                since = flush.group_commit.now();
            }
            let slot = &mut self.slots[at];
            let Some(future) = &mut slot.future else { continue };
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&slot.waker)) {
                slot.future = None;
                self.free.push(at);
                self.ready.push(output);
            }
        }
    }
}
