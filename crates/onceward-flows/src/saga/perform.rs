//! Performs one try of one step: runs its code under its receipt, and translates how it ended. Calls are shielded: a
//! caller that goes away cancels nothing, and a panic stays in its step.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use onceward::{
    Answer, Ask, Error, ErrorKind, Lease, Onceward, Outcome, Prior, Result, Stopped, Transactions,
};

use super::decide::Direction;
use super::result::{Ended, ITEMS_MAX, encode_list};
use super::step::{Step, StepAbout, StepOutput, StepResult, StepStop, StopKind};

/// The code of a step.
pub(crate) type Work = Arc<dyn StepWork>;
pub(crate) type Performing = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

pub(crate) trait StepWork: Send + Sync {
    /// One try, or the recorded answer. Owns all it needs.
    fn perform(&self, onceward: &Onceward, ask: Ask, about: Arc<StepAbout>) -> Performing;
}

/// What is not stored of an end: whether the code ran in a transaction, and what it may return at most.
#[derive(Clone, Copy)]
struct Translate {
    direction: Direction,
    bytes_max: usize,
    tries_max: u16,
    rolled_back: bool,
}

impl Translate {
    fn new(onceward: &Onceward, ask: &Ask, about: &StepAbout) -> Self {
        Self {
            direction: about.direction,
            bytes_max: onceward.body_bytes_max(),
            tries_max: ask.policy().tries_max(),
            rolled_back: false,
        }
    }

    fn outcome(self, lease: &Lease, ended: StepResult<Bytes>) -> Result<Outcome, Stopped> {
        let stop = match ended {
            Ok(value) => return Ok(self.succeeded(value)),
            Err(stop) => stop,
        };
        // What was rolled back did not happen.
        let kind = match (stop.kind, self.rolled_back) {
            (StopKind::Failed, true) => StopKind::Refused,
            (StopKind::Unknown, true) => StopKind::Retry,
            (kind, _) => kind,
        };
        match (self.direction, kind) {
            (_, StopKind::Unknown) => Err(stop.stopped),
            // An undo has to succeed: whatever it says, it is tried again.
            (Direction::Undo, _) => Err(Stopped::before_effect(stop.to_string())),
            (Direction::Action, StopKind::Refused) => {
                Ok(Ended::Refused(stop.to_string()).to_outcome(self.bytes_max))
            }
            (Direction::Action, StopKind::Failed) => {
                Ok(Ended::Failed(stop.to_string()).to_outcome(self.bytes_max))
            }
            (Direction::Action, StopKind::Retry) => {
                let tries = lease.tries();
                // A try that was rolled back leaves nothing behind, whatever is known of earlier ones.
                let may_have_run = lease.prior() == Prior::Unknown && !self.rolled_back;
                if tries < self.tries_max || may_have_run {
                    return Err(Stopped::before_effect(stop.to_string()));
                }
                let reason = format!("given up after {tries} tries: {stop}");
                Ok(Ended::Refused(reason).to_outcome(self.bytes_max))
            }
        }
    }

    fn succeeded(self, value: Bytes) -> Outcome {
        // What was undone is undone, whatever it has to say.
        let is_too_long = self.direction == Direction::Undo && value.len() >= self.bytes_max;
        let value = if is_too_long { Bytes::new() } else { value };
        Ended::Succeeded(value).to_outcome(self.bytes_max)
    }
}

/// A call.
pub(crate) struct CallWork<F, V> {
    work: Arc<F>,
    output: PhantomData<fn() -> V>,
}

impl<F, V> CallWork<F, V> {
    pub(crate) fn new(work: F) -> Self {
        Self { work: Arc::new(work), output: PhantomData }
    }
}

impl<F, W, V> StepWork for CallWork<F, V>
where
    F: Fn(Step) -> W + Send + Sync + 'static,
    W: Future<Output = StepResult<V>> + Send + 'static,
    V: Into<StepOutput> + 'static,
{
    fn perform(&self, onceward: &Onceward, ask: Ask, about: Arc<StepAbout>) -> Performing {
        let (work, translate) = (self.work.clone(), Translate::new(onceward, &ask, &about));
        let run = onceward.run(ask, move |lease| async move {
            let ended = work(Step { lease: lease.clone(), about }).await;
            translate.outcome(&lease, ended.map(|value| value.into().0))
        });
        Box::pin(Shield::new(onceward, run))
    }
}

/// The list of a step that loops.
pub(crate) struct ListWork<F, I> {
    list: Arc<F>,
    item: PhantomData<fn() -> I>,
}

impl<F, I> ListWork<F, I> {
    pub(crate) fn new(list: F) -> Self {
        Self { list: Arc::new(list), item: PhantomData }
    }
}

impl<F, W, I> StepWork for ListWork<F, I>
where
    F: Fn(Step) -> W + Send + Sync + 'static,
    W: Future<Output = StepResult<Vec<I>>> + Send + 'static,
    I: Into<Bytes> + 'static,
{
    fn perform(&self, onceward: &Onceward, ask: Ask, about: Arc<StepAbout>) -> Performing {
        let (list, translate) = (self.list.clone(), Translate::new(onceward, &ask, &about));
        let run = onceward.run(ask, move |lease| async move {
            let items = list(Step { lease: lease.clone(), about }).await;
            let items = items.and_then(|items| {
                if items.len() > ITEMS_MAX {
                    let reason = format!("a list of {} items; at most {ITEMS_MAX} are allowed", items.len());
                    return Err(StepStop::refused(reason));
                }
                Ok(encode_list(&items.into_iter().map(Into::into).collect::<Vec<_>>()))
            });
            translate.outcome(&lease, items)
        });
        Box::pin(Shield::new(onceward, run))
    }
}

/// A transaction.
pub(crate) struct TransactionWork<T, F, V> {
    transactions: Arc<T>,
    work: Arc<F>,
    output: PhantomData<fn() -> V>,
}

impl<T, F, V> TransactionWork<T, F, V> {
    pub(crate) fn new(transactions: T, work: F) -> Self {
        Self { transactions: Arc::new(transactions), work: Arc::new(work), output: PhantomData }
    }
}

impl<T, F, W, V> StepWork for TransactionWork<T, F, V>
where
    T: Transactions + 'static,
    T::Tx: Sync,
    F: Fn(Step, T::Tx) -> W + Send + Sync + 'static,
    W: Future<Output = StepResult<V>> + Send + 'static,
    V: Into<StepOutput> + 'static,
{
    fn perform(&self, onceward: &Onceward, ask: Ask, about: Arc<StepAbout>) -> Performing {
        let translate = Translate { rolled_back: true, ..Translate::new(onceward, &ask, &about) };
        let (transactions, work) = (self.transactions.clone(), self.work.clone());
        let onceward = onceward.clone();
        // Dropping it rolls back, so that it needs no shield.
        Box::pin(async move {
            let stopped: Arc<Mutex<Option<StepStop>>> = Arc::default();
            let transacted = onceward.transact(&*transactions, ask.clone(), |lease, tx| {
                let ending = work(Step { lease, about: about.clone() }, tx);
                let stopped = stopped.clone();
                async move {
                    match ending.await {
                        Ok(value) => Ok(translate.succeeded(value.into().0)),
                        Err(stop) => {
                            let why = stop.stopped.clone();
                            *stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
                            Err(why)
                        }
                    }
                }
            });
            let error = match AssertUnwindSafe(transacted).catch_unwind().await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    *stopped.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(StepStop::retry("it panicked, and was rolled back"));
                    panicked()
                }
            };
            let stop = stopped.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Nothing is left of what was rolled back, so its end, or its try, is recorded by itself. If this process
            // dies over that, the transaction is tried again.
            match stop.filter(|_| error.kind() == ErrorKind::Stopped) {
                Some(stop) => {
                    let record = |lease: Lease| async move { translate.outcome(&lease, Err(stop)) };
                    onceward.run(ask, record).await
                }
                None => Err(error),
            }
        })
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Stopped, "the step panicked")
}

/// A run that continues in a task of its own if it is dropped, and whose panic is an error.
struct Shield {
    onceward: Onceward,
    /// `None` once it ended.
    run: Option<Performing>,
}

impl Shield {
    fn new(onceward: &Onceward, run: impl Future<Output = Result<Answer>> + Send + 'static) -> Self {
        let run = AssertUnwindSafe(run).catch_unwind();
        // The engine has recorded the panic as an unknown outcome.
        let run = run.map(|ended| ended.unwrap_or_else(|_| Err(panicked().maybe_applied())));
        Self { onceward: onceward.clone(), run: Some(Box::pin(run)) }
    }
}

impl Future for Shield {
    type Output = Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let run = self.run.as_mut().expect("polled again after it was ready");
        let polled = run.as_mut().poll(cx);
        if polled.is_ready() {
            self.run = None;
        }
        polled
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.onceward.spawn(Box::pin(async { drop(run.await) }));
        }
    }
}
