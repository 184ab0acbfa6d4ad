//! Asks a participant what became of a step whose outcome is unknown, before an operator is needed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use onceward::{Changed, ChildKey, ErrorKind, Id, Onceward, Policy, Receipt, Result, Settlement, child_key};
use serde::de::DeserializeOwned;

use super::decide::Direction;
use super::result::Ended;
use super::state::Recorded;
use super::step::{CALL, StepAbout, StepOutput, read_json};

/// The statement of a participant about a step whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconciled {
    /// It happened, and this is its result.
    Done(StepOutput),
    /// It did not happen, and no copy that is still on its way will make it happen: it is tried again. Believed only
    /// after [`with_late_effect_max`](crate::SagaBuilder::with_late_effect_max).
    NotDone,
    /// The participant cannot tell yet, or cannot be reached: it is asked again.
    NotYet,
}

pub(crate) type ReconcileHook =
    Arc<dyn Fn(UnknownStep) -> Pin<Box<dyn Future<Output = Reconciled> + Send>> + Send + Sync>;

/// A step whose outcome is unknown, given to its [reconcile hook](crate::SagaBuilder::reconcile).
#[derive(Clone)]
pub struct UnknownStep {
    pub(crate) about: Arc<StepAbout>,
}

impl UnknownStep {
    /// The idempotency key that the step has sent.
    pub fn key(&self) -> Result<ChildKey> {
        child_key(&self.about.id_of(self.about.direction)?, CALL)
    }

    /// Returns the input of the saga.
    pub fn input(&self) -> &Bytes {
        &self.about.input
    }

    /// Returns the input of the saga, parsed as JSON.
    pub fn input_json<T: DeserializeOwned>(&self) -> Result<T> {
        read_json("the input of the saga", &self.about.input)
    }

    /// The result of a step, if it has succeeded.
    pub fn result_of(&self, step: &str) -> Option<&Bytes> {
        self.about.results.get(step)
    }

    /// In a step that loops over a list: the item that this is about.
    pub fn item(&self) -> Option<&Bytes> {
        self.about.item.as_ref()
    }

    /// The saga that this is a step of.
    pub fn saga(&self) -> &Id {
        &self.about.saga
    }

    /// The name of the step.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Returns whether this is the action or its undo.
    pub fn direction(&self) -> Direction {
        self.about.direction
    }
}

impl fmt::Debug for UnknownStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnknownStep({:?} {} {})", self.about.saga, self.about.name, self.about.direction)
    }
}

/// Settles a step by what its hook has said. `None`: nothing is known yet.
pub(crate) async fn record_reconciled(
    onceward: &Onceward,
    id: &Id,
    found: &Receipt,
    said: Reconciled,
    direction: Direction,
    policy: &Policy,
) -> Result<Option<Recorded>> {
    let bytes_max = onceward.body_bytes_max();
    let settlement = match said {
        Reconciled::NotYet => return Ok(None),
        Reconciled::NotDone => Settlement::NotDone,
        Reconciled::Done(StepOutput(value)) => {
            let is_too_long = direction == Direction::Undo && value.len() >= bytes_max;
            let value = if is_too_long { Bytes::new() } else { value };
            Settlement::Done(Ended::Succeeded(value).to_outcome(bytes_max))
        }
    };
    match onceward.settle(id, found.status.fence(), &settlement, policy).await {
        Ok(Changed::Applied) => Ok(Some(Recorded::of(onceward.receipt(id).await?.as_ref()))),
        Ok(Changed::NotOwner(now)) => Ok(Some(Recorded::of(now.as_ref()))),
        // What was sent can still take effect.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}
