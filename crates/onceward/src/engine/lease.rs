//! The lease that the work is given: its input, child keys, steps and transactions.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use super::Onceward;
use super::answer::{Answer, Completed};
use super::claim_guard::ClaimGuard;
use super::former_steps::{is_due_step, is_of_previous_life};
use super::in_flight::Flight;
use super::inner::Inner;
use super::lease_renewal::replace_input;
use super::lease_transact;
use super::run::run;
use super::signal::Signal;
use super::transact::transact;
use crate::ask::Ask;
use crate::child::{ChildKey, child_key};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::join::Transactions;
use crate::outcome::{Outcome, Stopped};
use crate::policy::{OnDuplicate, Policy, WAIT_MAX};
use crate::receipt::{Attempt, Fence, Held, Job, Prior};

/// The right to run one intent, given to its work. It is renewed automatically for as long as the work lives. Cheap
/// to clone.
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    fence: Fence,
    fingerprint: Fingerprint,
    prior: Prior,
    job: Option<Arc<Job>>,
    /// That the worker which runs it is told to stop.
    stop: Option<Arc<Signal>>,
    /// Other runs that end with this one, see [`Lease::beside`].
    others: Option<Arc<[Arc<Flight>]>>,
}

impl Lease {
    /// Of a claim that was won.
    pub(crate) fn of(guard: &ClaimGuard, fingerprint: Fingerprint) -> Self {
        let claimed = guard.flight.with_running(|running| {
            let Held { claim, prior, job, .. } = &running.held;
            (claim.fence, *prior, job.clone())
        });
        let (fence, prior, job) = claimed.unwrap_or((Fence(0), Prior::Nothing, None));
        let (inner, flight) = (guard.inner.clone(), guard.flight.clone());
        Self { inner, flight, fence, fingerprint, prior, job, stop: None, others: None }
    }

    /// Of a claim in a transaction.
    pub(crate) fn in_transaction(inner: Arc<Inner>, flight: Arc<Flight>, held: &Held) -> Self {
        let Held { claim, prior, job, .. } = held;
        Self {
            inner,
            flight,
            fence: claim.fence,
            fingerprint: claim.fingerprint,
            prior: *prior,
            job: job.clone(),
            stop: None,
            others: None,
        }
    }

    /// The request, if the receipt carries it ([`Ask::with_input`]). `None` also for an empty one: a run without an input
    /// that a [`Worker`](crate::Worker) takes over carries an empty one from then on, and the two look the same.
    pub fn input(&self) -> Option<&Bytes> {
        self.job.as_ref().map(|job| &job.input).filter(|input| !input.is_empty())
    }

    /// Replaces what the receipt carries as its [input](Self::input), for those who continue with the intent after this
    /// run; this lease keeps the input that it began with. Durable when it returns. After an error it may have
    /// happened, and the end of the run writes it in any case. Fails if the receipt carries no input.
    pub async fn replace_input(&self, input: impl Into<Bytes>) -> Result<()> {
        replace_input(&self.inner, &self.flight, &input.into()).await
    }

    /// The engine that this run is of.
    pub fn onceward(&self) -> Onceward {
        Onceward { inner: self.inner.clone() }
    }

    /// Which try this is, from 1 on. Counted are the tries of an intent that carries its input, and of a run without one
    /// since a [`Worker`](crate::Worker) took it over; for others it is always 1. A try that was suspended does not count,
    /// nor, where unknown outcomes are retried, one that was dropped; a settlement as not done and the retry of a dead
    /// intent begin at 1 again. [`Claim::tries`](crate::receipt::Claim::tries) counts the claims of every intent.
    pub fn tries(&self) -> u16 {
        self.job.as_ref().map_or(1, |job| job.started)
    }

    /// Returns whether an earlier run may have had its effect.
    pub fn prior(&self) -> Prior {
        self.prior
    }

    /// Which intent.
    pub fn id(&self) -> &Id {
        &self.flight.id
    }

    /// The fence of this run: it grows with every takeover. Send it along with the effect, so that a slow former owner
    /// is refused there too.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns whether this run certainly still has its lease. Ask it right before an effect that cannot be fenced,
    /// such as before the first byte of a request leaves: a process that was paused, or could not reach the store, may
    /// have lost the lease without having noticed. If it says no, end with
    /// [`Stopped::before_effect`](crate::Stopped::before_effect).
    pub fn is_held(&self) -> bool {
        let now = self.inner.now();
        let others = self.others.as_deref().unwrap_or_default();
        std::iter::once(&self.flight).chain(others).all(|flight| flight.is_held(now))
    }

    /// Ready when the [`Worker`](crate::Worker) that runs this is told to stop: long work may then end with
    /// [`Stopped::suspend`](crate::Stopped::suspend), which counts no try, and continue in another process. Work that
    /// does not is waited for. Never ready for other runs.
    ///
    /// ```
    /// # use onceward::*; use std::time::Duration;
    /// # async fn transfer() -> Result<Outcome, Stopped> { Ok(Outcome::succeeded("")) }
    /// async fn work(lease: Lease) -> Result<Outcome, Stopped> {
    ///     while lease.recorded("last").await?.is_none() {
    ///         if lease.is_stopping() {
    ///             return Err(Stopped::suspend(Duration::ZERO));
    ///         }
    ///         // ... the next step
    /// #       lease.step("last", async |_| transfer().await).await?;
    ///     }
    ///     Ok(Outcome::succeeded("all steps are done"))
    /// }
    /// ```
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let stop = self.stop.as_ref().map(|stop| stop.past(0));
        async move {
            match stop {
                Some(stop) => stop.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns whether the worker that runs this was told to stop, see [`stopping`](Self::stopping).
    pub fn is_stopping(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.count() > 0)
    }

    /// The same lease, of a worker that is told to stop by this signal.
    pub(crate) fn stopped_by(mut self, stop: Arc<Signal>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Which try this is.
    pub fn attempt(&self) -> Attempt {
        self.flight.attempt
    }

    /// Derives the idempotency key of a downstream call: the same for every try of this intent, and unique to it.
    pub fn child(&self, label: &str) -> Result<ChildKey> {
        child_key(self.id(), label)
    }

    /// Runs a step once for this intent: a recovery point. A later run of the intent skips `work` and gets the
    /// recorded outcome of the step.
    ///
    /// The step has a receipt of its own, under the policy of the intent except that a step still
    /// held by a previous owner is waited for. See [`Lease::step_under`] for another policy.
    pub async fn step<F, W>(&self, name: &str, work: F) -> Result<Answer>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        // A former owner's step may outlive the former owner's lease by one renewal.
        let wait_max = (self.flight.policy.lease() * 3).min(WAIT_MAX);
        let policy =
            self.flight.policy.to_builder().with_on_duplicate(OnDuplicate::Wait(wait_max)).build()?;
        self.step_under(policy, name, work).await
    }

    /// Like [`Lease::step`], under a policy of its own. Typical: the intent as a whole may be retried,
    /// but this one call to a service that knows no keys must be held when its outcome is unknown.
    pub async fn step_under<F, W>(
        &self,
        policy: impl Into<Arc<Policy>>,
        name: &str,
        work: F,
    ) -> Result<Answer>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let ask = Ask::new(self.id().step(name)?, self.fingerprint, policy);
        run(self.inner.clone(), ask, work).await
    }

    /// Returns what a step of this intent has recorded, without running it; `None` if it has not succeeded or failed
    /// yet.
    pub async fn recorded(&self, name: &str) -> Result<Option<Outcome>> {
        let id = self.id().step(name)?;
        let Some(receipt) = self.inner.load(&id).await? else { return Ok(None) };
        if is_due_step(&id, &receipt) && is_of_previous_life(&self.inner, &id, &receipt).await? {
            return Ok(None);
        }
        Ok(receipt.status.outcome().cloned())
    }

    /// Runs a step in a transaction: what `work` writes through `tx` and the step's receipt commit
    /// together, so a crash leaves both or neither. See [`Onceward::transact`](crate::Onceward::transact).
    pub async fn step_in<T, F, W>(&self, transactions: &T, name: &str, work: F) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let ask = Ask::new(self.id().step(name)?, self.fingerprint, self.flight.policy.clone());
        Box::pin(transact(&self.inner, transactions, ask, None, work)).await
    }

    /// Does the rest of the work in one transaction of the database that the store is in, and commits the outcome
    /// of *this* run with it: what `work` writes through `tx` and the receipt commit together or not at all. The
    /// outcome is then the answer to every ask, whatever the run itself returns afterwards.
    ///
    /// * The receipt is the last thing that is written, against the version of the claim. If another owner has
    ///   taken the claim over, nothing is committed, and this fails with [`LeaseLost`](crate::ErrorKind::LeaseLost). So a run
    ///   whose effects are all in `work` is safe to repeat: give it a policy with
    ///   [`OnUnknown::Retry`](crate::OnUnknown::Retry).
    /// * If `work` ends without an outcome, or with a failure that may be tried again, everything is rolled back, and
    ///   the run continues as if this had not been called.
    /// * If the database undoes the transaction in favour of another, the work is done again.
    /// * A commit whose answer was lost is looked up: the work is done again only if it did not happen.
    /// * **Dropping** the returned future rolls back; dropped during the commit itself, the receipt tells.
    pub async fn transact<T, F, W>(&self, transactions: &T, work: F) -> Result<Completed>
    where
        T: Transactions,
        F: FnMut(T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        lease_transact::transact(&self.inner, &self.flight, self.others.as_deref(), transactions, work).await
    }

    /// Returns the outcome that [`Lease::transact`] has committed, if it has.
    pub fn committed(&self) -> Option<Completed> {
        self.flight.committed()
    }

    /// The same lease, whose [`transact`](Lease::transact) also ends these runs: for an intent that has several
    /// receipts, each claimed by a run of its own. An unknown outcome under one of them is one of the intent.
    #[doc(hidden)]
    pub fn beside(mut self, others: &[Self]) -> Self {
        for other in others {
            if other.prior == Prior::Unknown || self.prior == Prior::Nothing {
                self.prior = other.prior;
            }
        }
        self.others = Some(others.iter().map(|other| other.flight.clone()).collect());
        self
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("id", self.id()).field("fence", &self.fence.0).finish_non_exhaustive()
    }
}
