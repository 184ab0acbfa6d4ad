//! The completer: finishes what was begun and left, with code that was registered for it.
//!
//! ```text
//! a look at what is due, the first one left first
//!     Hold, or an operation without code      counted, never touched
//!     left a moment ago, or failed lately     its time has not come
//!     else take it over and run its code      finished │ failed: backs off │ somebody else has it
//! ```
//!
//! It needs no partner: of any number of completers and callers who want the same intent, one gets it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use super::Onceward;
use super::abandoned::{Abandoned, abandoned};
use super::crowd::Crowd;
use super::lease::Lease;
use super::race::within;
use super::resume::{Resumed, resume};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::outcome::{Outcome, Stopped};
use crate::policy::{OnUnknown, Policy};

/// Records looked at in one slice.
const SLICE_RECORDS: usize = 256;
/// Failures that are remembered. Beyond that, only their leases slow them down.
const FAILURES_MAX: usize = 10_000;

/// Finishes abandoned intents whose code is registered: those whose owner died or lost touch, under a
/// policy that lets them be run again, and that nobody has asked for since.
///
/// The code is given a [`Lease`] and nothing else: a receipt does not keep what was asked, only its digest.
/// The lease's [id](Lease::id) says which intent it is; whatever else is needed is found by its key, in the
/// tables of the business. [Steps](Lease::step) that are done are skipped, as in any other run.
///
/// ```
/// # use onceward::*; use std::sync::Arc;
/// # async fn example(onceward: Onceward, stop: impl Future<Output = ()>) -> Result<()> {
/// let policy = Arc::new(Policy::queue());
/// let completer = Completer::new(onceward).operation("payout", policy, async |lease: Lease| {
///     let transfer = lease.step("transfer", async |_| Ok(Outcome::succeeded("transfer 7"))).await?;
///     Ok(transfer.ran()?.outcome)
/// })?;
/// completer.run_until(stop).await;
/// # Ok(()) }
/// ```
///
/// A run that ended with an error is not abandoned: its caller was told, and its key is free.
pub struct Completer {
    onceward: Onceward,
    operations: HashMap<String, Operation>,
    pace: Pace,
    state: Mutex<State>,
}

struct Operation {
    policy: Arc<Policy>,
    work: Box<dyn Fn(Lease) -> Working + Send + Sync>,
}

type Working = Pin<Box<dyn Future<Output = Result<Outcome, Stopped>> + Send>>;

#[derive(Default)]
struct State {
    counts: Completed,
    failures: HashMap<Id, Failure>,
}

/// Code that did not get to an outcome.
struct Failure {
    /// It is left alone until then, by the clock of the world.
    until: Duration,
    delay: Duration,
}

/// How fast a completer goes about it.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Intents worked on at the same time.
    pub concurrency: usize,
    /// Between two looks.
    pub pause: Duration,
    /// An intent is left alone so long after its lease ended, for its caller's own retry.
    pub grace: Duration,
    /// How long an intent whose code failed is left alone at first; doubled each time.
    pub backoff_min: Duration,
    /// How long it is left alone at most.
    pub backoff_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            concurrency: 8,
            pause: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
        }
    }
}

/// What became of one intent that was to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It has an outcome now.
    Finished,
    /// Its code did not get to one, for this reason. It stays where it is, for another try.
    Failed(String),
    /// Somebody else went on with it.
    Elsewhere,
    /// It must not be run again by itself; somebody has to settle it.
    Held,
    /// Nobody has left it: it is done, it is running, or there is no receipt of it.
    NotLeft,
    /// There is no code for it here.
    Unregistered,
}

/// What a completer has done, and what its last look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Intents that got an outcome.
    pub finished: u64,
    /// Times that the code did not get to one; it is tried again later.
    pub failed: u64,
    /// Intents that somebody else went on with.
    pub elsewhere: u64,
    /// At the last look: intents whose time has not come, left a moment ago or failed lately.
    pub waiting: u64,
    /// At the last look: intents that must not be run again by themselves; somebody has to settle them.
    pub held: u64,
    /// At the last look: intents of operations without code here. Steps are not counted: they go on with
    /// their intents.
    pub unregistered: u64,
    /// At the last look: receipts that could not be read.
    pub unreadable: u64,
}

impl Completer {
    /// A completer without any code yet.
    pub fn new(onceward: Onceward) -> Self {
        let (operations, pace, state) = (HashMap::new(), Pace::default(), Mutex::default());
        Self { onceward, operations, pace, state }
    }

    /// Registers the code of an operation, and the policy it runs under. Fails if the policy does not let
    /// an abandoned run be repeated.
    pub fn operation<F, W>(mut self, name: &str, policy: Arc<Policy>, work: F) -> Result<Self>
    where
        F: Fn(Lease) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Outcome, Stopped>> + Send + 'static,
    {
        // An operation is what may be one in an id.
        Id::new("scope", name, "key")?;
        if policy.unknown_rule() == OnUnknown::Hold {
            let detail =
                format!("`{name}` is held when in doubt, so nothing may complete it; use OnUnknown::Retry");
            return Err(Error::invalid(detail));
        }
        let work = Box::new(move |lease| Box::pin(work(lease)) as Working);
        self.operations.insert(name.to_owned(), Operation { policy, work });
        Ok(self)
    }

    /// Sets how fast it goes about it.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Finishes one intent now, however lately it was left or failed: for a service that is told about it.
    /// Dropping it is as with [`round`](Self::round).
    pub async fn complete(&self, id: &Id) -> Result<Completion> {
        let inner = &self.onceward.inner;
        let Some(left) = inner.load(id).await?.and_then(|receipt| Abandoned::new(id.clone(), receipt)) else {
            return Ok(Completion::NotLeft);
        };
        let Some(Operation { policy, work }) = self.operations.get(id.operation()) else {
            return Ok(Completion::Unregistered);
        };
        if left.on_unknown == OnUnknown::Hold {
            return Ok(Completion::Held);
        }
        let resumed = resume(inner.clone(), &left, policy.clone(), work).await?;
        let completion = match &resumed {
            Resumed::Finished => Completion::Finished,
            Resumed::Failed(why) => Completion::Failed(why.clone()),
            Resumed::Elsewhere => Completion::Elsewhere,
        };
        self.count(vec![(left.id, Ok(resumed))]);
        Ok(completion)
    }

    /// Looks once at everything that was left, finishes what it may, and says what it has done so far.
    ///
    /// **Dropping** the returned future leaves what is under way: its leases end by themselves, and the
    /// next look, here or elsewhere, goes on with it.
    pub async fn round(&self) -> Result<Completed> {
        let mut crowd = Crowd::new();
        let looked = self.look(&mut crowd, &mut Stop::new(pin!(std::future::pending()))).await;
        crowd.until_below(1).await;
        self.count(crowd.ready());
        looked.map(|()| self.counts())
    }

    /// Looks again and again, until `stop` is ready; then nothing more is begun, and what is under way is
    /// finished. A look that fails is logged and tried again. Dropping it is as with [`round`](Self::round).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let stop = pin!(stop);
        let (mut stop, mut crowd) = (Stop::new(stop), Crowd::new());
        while !stop.is_set().await {
            if let Err(error) = self.look(&mut crowd, &mut stop).await {
                tracing::warn!(%error, "a look at what was left failed, trying again later");
            }
            let world = &*self.onceward.inner.world;
            crowd.beside(within(world, self.pace.pause, stop.set())).await;
            self.count(crowd.ready());
        }
        crowd.until_below(1).await;
        self.count(crowd.ready());
    }

    /// What it has done so far.
    pub fn counts(&self) -> Completed {
        self.state().counts
    }

    /// Puts to work what was left and may be gone on with.
    async fn look<'a, S: Future<Output = ()>>(
        &'a self,
        crowd: &mut Crowd<'a, (Id, Result<Resumed>)>,
        stop: &mut Stop<'_, S>,
    ) -> Result<()> {
        let inner = &self.onceward.inner;
        let (mut seen, mut after) = (Completed::default(), None);
        loop {
            let page = crowd.beside(abandoned(inner, after, SLICE_RECORDS)).await?;
            seen.unreadable += page.unreadable as u64;
            for left in page.found {
                let Some(operation) = self.chosen(&left, &mut seen) else { continue };
                crowd.until_below(self.pace.concurrency.max(1)).await;
                self.count(crowd.ready());
                if stop.is_set().await {
                    return Ok(());
                }
                crowd.add(async move {
                    let policy = operation.policy.clone();
                    let resumed = resume(inner.clone(), &left, policy, &operation.work).await;
                    (left.id, resumed)
                });
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut state = self.state();
        let Completed { finished, failed, elsewhere, .. } = state.counts;
        state.counts = Completed { finished, failed, elsewhere, ..seen };
        Ok(())
    }

    /// The code of an intent that may be gone on with now; for the others, the reason is counted.
    fn chosen(&self, left: &Abandoned, seen: &mut Completed) -> Option<&Operation> {
        let Some(operation) = self.operations.get(left.id.operation()) else {
            seen.unregistered += u64::from(!left.id.is_step());
            return None;
        };
        if left.on_unknown == OnUnknown::Hold {
            seen.held += 1;
            return None;
        }
        let now = self.onceward.inner.now();
        let failed_lately = self.state().failures.get(&left.id).is_some_and(|failure| failure.until > now);
        if failed_lately || left.ago < self.pace.grace {
            seen.waiting += 1;
            return None;
        }
        Some(operation)
    }

    fn count(&self, ready: Vec<(Id, Result<Resumed>)>) {
        let now = self.onceward.inner.now();
        for (id, resumed) in ready {
            let mut state = self.state();
            match resumed {
                Ok(Resumed::Finished) => state.counts.finished += 1,
                Ok(Resumed::Elsewhere) => state.counts.elsewhere += 1,
                Ok(Resumed::Failed(why)) => {
                    state.counts.failed += 1;
                    let delay = state.back_off(&id, now, &self.pace);
                    tracing::warn!(?id, %why, ?delay, "an abandoned intent could not be finished");
                    continue;
                }
                // Whatever became of it, the next look tells.
                Err(error) => {
                    tracing::warn!(?id, %error, "the store failed under an abandoned intent");
                    continue;
                }
            }
            state.failures.remove(&id);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn back_off(&mut self, id: &Id, now: Duration, pace: &Pace) -> Duration {
        if self.failures.len() >= FAILURES_MAX {
            self.failures.retain(|_, failure| failure.until > now);
        }
        let before = self.failures.get(id).map(|failure| failure.delay);
        let delay = before.map_or(pace.backoff_min, |delay| delay.saturating_mul(2)).min(pace.backoff_max);
        if before.is_some() || self.failures.len() < FAILURES_MAX {
            self.failures.insert(id.clone(), Failure { until: now + delay, delay });
        }
        delay
    }
}

impl std::fmt::Debug for Completer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operations: Vec<_> = self.operations.keys().collect();
        f.debug_struct("Completer").field("operations", &operations).finish_non_exhaustive()
    }
}

/// A signal that is looked at now and then, and never again once it was there.
struct Stop<'a, S> {
    signal: Pin<&'a mut S>,
    set: bool,
}

impl<'a, S: Future<Output = ()>> Stop<'a, S> {
    fn new(signal: Pin<&'a mut S>) -> Self {
        Self { signal, set: false }
    }

    async fn set(&mut self) {
        if !self.set {
            self.signal.as_mut().await;
            self.set = true;
        }
    }

    async fn is_set(&mut self) -> bool {
        let mut set = pin!(self.set());
        poll_fn(|cx| Poll::Ready(set.as_mut().poll(cx).is_ready())).await
    }
}
