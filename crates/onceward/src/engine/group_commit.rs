//! Group commit without timers. While batches are in flight, the next one fills: at low load a
//! swap is sent at once and alone, at high load a batch carries hundreds.
//!
//! ```text
//! swap() ── may one be sent? ─yes─▶ sent alone ──▶ store ──▶ answer
//!               │ no                                    │ then: anything queued?
//!               ▼                                       ▼
//!             queue ◀────────── takes as many as fit ── next batch, in a task of its own
//! ```
//!
//! A swap is submitted when [`GroupCommit::swap`] is called, not when its future is first polled, and goes
//! on when that future is dropped. No caller ever drives another caller's swap, so a future that is
//! polled once and then forgotten delays no other caller.
//!
//! A task of its own costs a wake-up more, and two kinds of swap do without: those to a store that
//! [makes batches](crate::Hints::batches_internally) itself, and one at a time that has the store to itself. Their
//! callers wait for the store directly.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::counts::Counters;
use super::limits::Limits;
use super::oneshot::{Receiver, Sender, oneshot};
use super::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Runtime;
use crate::store::{Page, State, Store, Swap, Swapped};

pub(crate) struct GroupCommit {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    counters: Arc<Counters>,
    limits: Limits,
    batches_max: usize,
    batches_internally: bool,
    /// Swaps handed to a store that makes batches itself. Its callers share nothing but this number.
    handed: AtomicUsize,
    state: Mutex<GroupState>,
}

/// Invariant: unless `batches_in_flight` is at its maximum, the queue has only swaps that wait for a
/// [`flush`](GroupCommit::flush).
struct GroupState {
    queue: VecDeque<Queued>,
    batches_in_flight: usize,
    /// Whether some caller drives its own swap. It is not counted as a batch: the queue does not wait for it.
    alone: bool,
}

/// A swap, and who is told about it.
pub(crate) struct Queued {
    swap: Swap,
    answer: Sender<SwapReply>,
}

impl Queued {
    /// A swap that the caller sends, and its answer.
    pub(crate) fn new(swap: Swap) -> (Self, Swapping) {
        let (answer, receiver) = oneshot();
        (Self { swap, answer }, Swapping::Waiting(receiver))
    }
}

/// The reply of the store to one swap.
pub(crate) struct SwapReply {
    /// When the batch was sent, after any time in the queue: the store cannot have read earlier.
    pub(crate) sent_at: Duration,
    pub(crate) result: Result<Swapped>,
}

/// Whether a swap may be refused when the queue is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A claim: nothing has happened yet, so it can be refused.
    Refusable,
    /// Everything after the claim: refusing it would leave an effect without its receipt.
    Required,
}

/// When a swap is sent to the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendWhen {
    /// As soon as another batch may be sent.
    Now,
    /// At the next [`flush`](GroupCommit::flush), with others. The caller that submits it must flush.
    OnFlush,
}

/// The answer to a swap, when it comes. Dropping it does not undo the swap.
pub(crate) enum Swapping {
    Ready(Option<SwapReply>),
    Waiting(Receiver<SwapReply>),
    CallerDriven(CallerDrivenSwap),
}

/// A swap that its own caller drives.
pub(crate) struct CallerDrivenSwap {
    group_commit: Arc<GroupCommit>,
    /// `None` when it is done. Never locked: the mutex makes the owner of this `Sync`.
    future: Option<std::sync::Mutex<SwapFuture>>,
}

type SwapFuture = Pin<Box<dyn Future<Output = SwapReply> + Send>>;

impl GroupCommit {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        counters: Arc<Counters>,
        limits: Limits,
    ) -> Arc<Self> {
        let caps = store.caps();
        let (batches_max, batches_internally) =
            (caps.hints.batches_in_flight.max(1), caps.hints.batches_internally);
        let state = GroupState { queue: VecDeque::new(), batches_in_flight: 0, alone: false };
        Arc::new(Self {
            store,
            runtime,
            counters,
            limits,
            batches_max,
            batches_internally,
            handed: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }

    /// Submits a swap.
    pub(crate) fn swap(self: &Arc<Self>, swap: Swap, urgency: Urgency) -> Swapping {
        let permit = if self.batches_internally {
            let waiting = self.handed.fetch_add(1, Ordering::Relaxed);
            let permit = BatchPermit { group_commit: self.clone(), kind: PermitKind::Handed };
            if urgency == Urgency::Refusable && waiting >= self.limits.queue_claims_max {
                return self.refuse();
            }
            permit
        } else {
            let mut state = self.state.lock();
            if urgency == Urgency::Refusable && state.queue.len() >= self.limits.queue_claims_max {
                return self.refuse();
            }
            let Some(kind) = state.begin(self.batches_max) else {
                let (answer, receiver) = oneshot();
                state.queue.push_back(Queued { swap, answer });
                return Swapping::Waiting(receiver);
            };
            BatchPermit { group_commit: self.clone(), kind }
        };
        let kind = permit.kind;
        let batch = [swap];
        // No `async fn`: it would keep its arguments twice.
        let mut future: SwapFuture = Box::pin(async move {
            let sent_at = permit.group_commit.runtime.now();
            let answers = permit.group_commit.send_to_store(&batch).await;
            let result = answers.map(|mut answers| answers.pop().expect("as many answers as swaps, checked"));
            SwapReply { sent_at, result }
        });
        // A store that answers at once (memory) is done here. Any other has begun by now, and gets
        // a waker that lasts: its caller's, or that of a task of its own.
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Swapping::Ready(Some(answer)),
            Poll::Pending if kind == PermitKind::InFlight => {
                let (answer, receiver) = oneshot();
                self.runtime.spawn(Box::pin(async move { answer.send(future.await) }));
                Swapping::Waiting(receiver)
            }
            Poll::Pending => Swapping::CallerDriven(CallerDrivenSwap {
                group_commit: self.clone(),
                future: Some(std::sync::Mutex::new(future)),
            }),
        }
    }

    /// Submits a swap, to be sent at once or with the next flush.
    #[inline]
    pub(crate) fn swap_with(self: &Arc<Self>, swap: Swap, urgency: Urgency, send_when: SendWhen) -> Swapping {
        if send_when == SendWhen::Now || self.batches_internally {
            return self.swap(swap, urgency);
        }
        self.enqueue(swap, urgency)
    }

    fn enqueue(&self, swap: Swap, urgency: Urgency) -> Swapping {
        let mut state = self.state.lock();
        if urgency == Urgency::Refusable && state.queue.len() >= self.limits.queue_claims_max {
            return self.refuse();
        }
        let (answer, receiver) = oneshot();
        state.queue.push_back(Queued { swap, answer });
        Swapping::Waiting(receiver)
    }

    /// Submits many at once, to be sent in one batch even when nothing else is in flight.
    pub(crate) fn swap_all(self: &Arc<Self>, swaps: Vec<Swap>) -> Vec<Swapping> {
        let mut answers = Vec::with_capacity(swaps.len());
        {
            let mut state = self.state.lock();
            for swap in swaps {
                let (answer, receiver) = oneshot();
                state.queue.push_back(Queued { swap, answer });
                answers.push(Swapping::Waiting(receiver));
            }
        }
        self.flush();
        answers
    }

    /// Takes due records in one step of the store's ([`Store::take`]). What is queued at that moment is written with
    /// it. Ready with what `choose` kept beside the swaps; with `None` if the store has no such step.
    ///
    /// It is a task of its own: a caller that is not polled must not keep records locked.
    pub(crate) fn take<T, C>(
        self: &Arc<Self>,
        state: State,
        limit: usize,
        choose: C,
    ) -> impl Future<Output = Result<Option<T>>> + use<T, C>
    where
        T: Send + 'static,
        C: FnOnce(Page) -> (Vec<Queued>, T) + Send + 'static,
    {
        let (tell, told) = oneshot();
        let group_commit = self.clone();
        self.runtime
            .spawn(Box::pin(async move { tell.send(group_commit.take_now(state, limit, choose).await) }));
        async move {
            told.await.unwrap_or_else(|| {
                let detail = "the task that took due records ended without an answer";
                Err(Error::new(ErrorKind::Unavailable, detail).maybe_applied())
            })
        }
    }

    async fn take_now<T: Send>(
        self: &Arc<Self>,
        state: State,
        limit: usize,
        choose: impl FnOnce(Page) -> (Vec<Queued>, T) + Send,
    ) -> Result<Option<T>> {
        let (mut chosen, mut senders, mut sent_at) = (None, Vec::new(), Duration::ZERO);
        let choose = |page: Page| {
            let (claims, kept) = choose(page);
            let swaps: Vec<Swap>;
            (swaps, senders) =
                self.batch_of(claims).into_iter().map(|queued| (queued.swap, queued.answer)).unzip();
            sent_at = self.runtime.now();
            chosen = Some((kept, swaps.len()));
            self.counters.store_batches.one();
            self.counters.store_swaps.add(swaps.len());
            swaps
        };
        let Some(taking) = self.store.take(state, limit, Box::new(choose)) else { return Ok(None) };
        let answers = taking.await.inspect_err(|_| self.counters.store_errors.one());
        let Some((kept, count)) = chosen else { return answers.and_then(|_| Err(not_called())) };
        match checked(answers, count) {
            Ok(answers) => {
                for (sender, answer) in senders.into_iter().zip(answers) {
                    sender.send(SwapReply { sent_at, result: Ok(answer) });
                }
            }
            // What was chosen learns it from its answers.
            Err(error) => {
                for sender in senders {
                    sender.send(SwapReply { sent_at, result: Err(error.clone()) });
                }
            }
        }
        Ok(Some(kept))
    }

    /// These swaps and what is queued, as far as it fits one batch. The rest is sent by itself.
    fn batch_of(self: &Arc<Self>, swaps: Vec<Queued>) -> Vec<Queued> {
        let batch = {
            let mut state = self.state.lock();
            for queued in swaps.into_iter().rev() {
                state.queue.push_front(queued);
            }
            self.take_batch(&mut state)
        };
        self.flush();
        batch
    }

    pub(crate) fn now(&self) -> Duration {
        self.runtime.now()
    }

    /// Sends what is queued, in as many batches as may be in flight.
    pub(crate) fn flush(self: &Arc<Self>) {
        loop {
            let batch = {
                let mut state = self.state.lock();
                if state.queue.is_empty() || state.batches_in_flight >= self.batches_max {
                    return;
                }
                state.batches_in_flight += 1;
                self.take_batch(&mut state)
            };
            let permit = BatchPermit { group_commit: self.clone(), kind: PermitKind::InFlight };
            self.runtime.spawn(Box::pin(permit.swap_batch(batch)));
        }
    }

    // No `async fn`, as above.
    #[expect(clippy::manual_async_fn, reason = "see above")]
    fn send_to_store<'a>(&'a self, batch: &'a [Swap]) -> impl Future<Output = Result<Vec<Swapped>>> + 'a {
        async move {
            self.counters.store_batches.one();
            self.counters.store_swaps.add(batch.len());
            let answers = self.store.swap(batch).await.inspect_err(|_| self.counters.store_errors.one());
            checked(answers, batch.len())
        }
    }

    /// The next batch, sorted by id and with no id twice. A second swap of an id stays queued.
    fn take_batch(&self, state: &mut GroupState) -> Vec<Queued> {
        let mut batch: Vec<Queued> = Vec::with_capacity(state.queue.len().min(self.limits.batch_swaps_max));
        let mut bytes = 0;
        while let Some(next) = state.queue.front() {
            bytes += next.swap.new.as_ref().map_or(0, |record| record.bytes.len());
            let full = batch.len() >= self.limits.batch_swaps_max || bytes > self.limits.batch_bytes_max;
            if full && !batch.is_empty() {
                break;
            }
            batch.extend(state.queue.pop_front());
        }
        // Stable, so that of two swaps of one id the older goes first.
        batch.sort_by(|a, b| a.swap.id.cmp(&b.swap.id));
        if batch.windows(2).any(|pair| pair[0].swap.id == pair[1].swap.id) {
            let mut unique: Vec<Queued> = Vec::with_capacity(batch.len());
            let mut again = Vec::new();
            for queued in batch {
                if unique.last().is_some_and(|last| last.swap.id == queued.swap.id) {
                    again.push(queued);
                } else {
                    unique.push(queued);
                }
            }
            for queued in again.into_iter().rev() {
                state.queue.push_front(queued);
            }
            batch = unique;
        }
        batch
    }

    #[cold]
    fn refuse(&self) -> Swapping {
        let max = self.limits.queue_claims_max;
        let detail = format!("{max} claims are waiting for the store already; try again later");
        let result = Err(Error::new(ErrorKind::Overloaded, detail));
        Swapping::Ready(Some(SwapReply { sent_at: self.runtime.now(), result }))
    }
}

/// The answers of a store, if they are as many as the swaps.
#[inline]
fn checked(answers: Result<Vec<Swapped>>, swaps: usize) -> Result<Vec<Swapped>> {
    let answers = answers?;
    if answers.len() != swaps {
        let detail = format!("the store gave {} answers to {swaps} swaps", answers.len());
        return Err(Error::new(ErrorKind::Damaged, detail).maybe_applied());
    }
    Ok(answers)
}

fn not_called() -> Error {
    Error::new(ErrorKind::Damaged, "the store took due records without asking what to write")
}

impl GroupState {
    /// How one more swap may be sent at once; `None` if it has to queue.
    fn begin(&mut self, batches_max: usize) -> Option<PermitKind> {
        if self.batches_in_flight == 0 && !self.alone {
            self.alone = true;
            return Some(PermitKind::Alone);
        }
        if self.batches_in_flight < batches_max {
            self.batches_in_flight += 1;
            return Some(PermitKind::InFlight);
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PermitKind {
    /// One of the batches that may be in flight. The swaps in the queue wait for it to end.
    InFlight,
    /// A swap that found nothing else in flight, and that its caller drives.
    Alone,
    /// A swap that the store puts into a batch itself.
    Handed,
}

/// The right to ask the store. Giving it back starts the next batch, also after a panic in the store
/// or when its task is dropped, so that one broken call does not block all that follow.
struct BatchPermit {
    group_commit: Arc<GroupCommit>,
    kind: PermitKind,
}

impl BatchPermit {
    async fn swap_batch(self, batch: Vec<Queued>) {
        let (swaps, senders): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|queued| (queued.swap, queued.answer)).unzip();
        let sent_at = self.group_commit.runtime.now();
        match self.group_commit.send_to_store(&swaps).await {
            Ok(answers) => {
                for (sender, answer) in senders.into_iter().zip(answers) {
                    sender.send(SwapReply { sent_at, result: Ok(answer) });
                }
            }
            Err(error) => {
                for sender in senders {
                    sender.send(SwapReply { sent_at, result: Err(error.clone()) });
                }
            }
        }
    }
}

impl Drop for BatchPermit {
    fn drop(&mut self) {
        if self.kind == PermitKind::Handed {
            self.group_commit.handed.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let batch = {
            let mut state = self.group_commit.state.lock();
            match self.kind {
                // Counted outside the lock, above.
                PermitKind::Handed => None,
                PermitKind::Alone => {
                    state.alone = false;
                    None
                }
                PermitKind::InFlight if state.queue.is_empty() => {
                    state.batches_in_flight -= 1;
                    None
                }
                PermitKind::InFlight => Some(self.group_commit.take_batch(&mut state)),
            }
        };
        if let Some(batch) = batch {
            let next = Self { group_commit: self.group_commit.clone(), kind: PermitKind::InFlight };
            self.group_commit.runtime.spawn(Box::pin(next.swap_batch(batch)));
        }
    }
}

impl Drop for CallerDrivenSwap {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        // A store that makes batches itself goes on; any other wants to be driven to its end.
        if !self.group_commit.batches_internally
            && let Ok(future) = future.into_inner()
        {
            self.group_commit.runtime.spawn(Box::pin(async move { drop(future.await) }));
        }
    }
}

impl Future for Swapping {
    type Output = SwapReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(answer) => Poll::Ready(answer.take().expect("polled again after it was ready")),
            Self::Waiting(receiver) => Pin::new(receiver).poll(cx).map(|arrived| {
                arrived.unwrap_or_else(|| {
                    let detail = "the task that wrote to the store ended without an answer";
                    let error = Error::new(ErrorKind::Unavailable, detail).maybe_applied();
                    SwapReply { sent_at: Duration::ZERO, result: Err(error) }
                })
            }),
            Self::CallerDriven(driven) => {
                let future = driven.future.as_mut().expect("polled again after it was ready");
                let future = future.get_mut().expect("never locked, so never poisoned");
                let reply = std::task::ready!(future.as_mut().poll(cx));
                driven.future = None;
                Poll::Ready(reply)
            }
        }
    }
}
