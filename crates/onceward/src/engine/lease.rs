//! What the work is given: the right to run, and the means to pass it on.

use std::future::Future;
use std::sync::Arc;

use super::answer::Answer;
use super::flight::Flight;
use super::inner::Inner;
use super::run::run;
use super::transact::transact;
use crate::ask::Ask;
use crate::child::{ChildKey, child_key};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::join::Transactions;
use crate::outcome::{Outcome, Stopped};
use crate::policy::{OnDuplicate, Policy, WAIT_MAX};
use crate::receipt::{Attempt, Fence};

/// The right to run one intent, renewed by itself for as long as the work lives. Cheap to clone.
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    fence: Fence,
    fingerprint: Fingerprint,
}

impl Lease {
    pub(crate) fn new(
        inner: Arc<Inner>,
        flight: Arc<Flight>,
        fence: Fence,
        fingerprint: Fingerprint,
    ) -> Self {
        Self { inner, flight, fence, fingerprint }
    }

    /// Which intent.
    pub fn id(&self) -> &Id {
        &self.flight.id
    }

    /// Grows with every takeover. Hand it to whatever has the effect, so that a slow former owner can
    /// be turned away there too.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Which try this is.
    pub fn attempt(&self) -> Attempt {
        self.flight.attempt
    }

    /// The key for a downstream call: the same for every try of this intent, and for nothing else.
    pub fn child(&self, label: &str) -> Result<ChildKey> {
        child_key(self.id(), label)
    }

    /// A recovery point: runs `work` once for this intent, whoever runs the intent. A later run of
    /// the intent skips it and gets the recorded outcome.
    ///
    /// The step has a receipt of its own, under the policy of the intent except that a step still
    /// held by a former owner is waited for. See [`Lease::step_under`] for another policy.
    pub async fn step<F, W>(&self, name: &str, work: F) -> Result<Answer>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        // A former owner's step may outlive the former owner's lease by one renewal.
        let patience = (self.flight.policy.lease_duration() * 3).min(WAIT_MAX);
        let policy = Policy::clone(&self.flight.policy).on_duplicate(OnDuplicate::Wait(patience))?;
        self.step_under(Arc::new(policy), name, work).await
    }

    /// Like [`Lease::step`], under a policy of its own. Typical: the intent as a whole may be retried,
    /// but this one call to a service that knows no keys must be held when in doubt.
    pub async fn step_under<F, W>(&self, policy: Arc<Policy>, name: &str, work: F) -> Result<Answer>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let ask = Ask::new(self.id().step(name)?, self.fingerprint, policy);
        run(self.inner.clone(), ask, work).await
    }

    /// A recovery point in a transaction: what `work` writes through `tx` and the step's receipt commit
    /// together, so a crash leaves both or neither. See [`Onceward::transact`](crate::Onceward::transact).
    pub async fn step_in<T, F, W>(&self, transactions: &T, name: &str, work: F) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let ask = Ask::new(self.id().step(name)?, self.fingerprint, self.flight.policy.clone());
        Box::pin(transact(&self.inner, transactions, ask, work)).await
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("id", self.id()).field("fence", &self.fence.0).finish_non_exhaustive()
    }
}
