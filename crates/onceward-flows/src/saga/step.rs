//! What the code of a step is given, and what it gives back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onceward::{Attempt, ChildKey, Error, ErrorKind, Fence, Id, Lease, Result, Stopped, child_key};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::decide::Direction;

/// The label under which the key of a step's call is derived. A change would change every key ever sent.
pub(crate) const CALL: &str = "call";

/// One try of one step of a saga, given to its code: the input, the results of the steps before it, and the idempotency
/// key to send downstream. Cheap to clone.
#[derive(Clone)]
pub struct Step {
    pub(crate) lease: Lease,
    pub(crate) about: Arc<StepAbout>,
}

/// What is the same for all tries of a step.
pub(crate) struct StepAbout {
    pub(crate) saga: Id,
    pub(crate) name: String,
    pub(crate) direction: Direction,
    pub(crate) input: Bytes,
    pub(crate) item: Option<Bytes>,
    pub(crate) results: Arc<BTreeMap<String, Bytes>>,
}

impl StepAbout {
    pub(crate) fn id_of(&self, direction: Direction) -> Result<Id> {
        step_id(&self.saga, &self.name, direction)
    }
}

/// The id of the receipt of one direction of a step.
pub(crate) fn step_id(saga: &Id, name: &str, direction: Direction) -> Result<Id> {
    match direction {
        Direction::Action => saga.step(name),
        Direction::Undo => saga.step(&format!("{name}/undo")),
    }
}

impl Step {
    /// Returns the input of the saga.
    pub fn input(&self) -> &Bytes {
        &self.about.input
    }

    /// Returns the input of the saga, parsed as JSON. Fails if it is not the JSON of a `T`.
    pub fn input_json<T: DeserializeOwned>(&self) -> Result<T> {
        read_json("the input of the saga", &self.about.input)
    }

    /// The idempotency key of this step's call downstream: the same for every try, unique to this step and direction.
    pub fn key(&self) -> Result<ChildKey> {
        child_key(&self.about.id_of(self.about.direction)?, CALL)
    }

    /// In an undo: what a call downstream must name as closed, so that a late copy of the action is refused there too.
    /// `operation` is the participant's own name of the action, for HTTP its method and route: `POST /charges`.
    pub fn closes(&self, operation: impl Into<String>) -> Result<Closes> {
        let key = child_key(&self.about.id_of(Direction::Action)?, CALL)?;
        Ok(Closes { key, operation: operation.into() })
    }

    /// The result of a step, if it has succeeded: of one before this one, of a signal that was waited for, or, in an
    /// undo, of the action that is undone.
    pub fn result_of(&self, step: &str) -> Option<&Bytes> {
        self.about.results.get(step)
    }

    /// The result of a step, read as JSON. Fails if it has none, or one that is not the JSON of a `T`.
    pub fn result_json<T: DeserializeOwned>(&self, step: &str) -> Result<T> {
        let result = self.result_of(step).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("the step `{step}` has no result: it has not succeeded"))
        })?;
        read_json(&format!("the result of the step `{step}`"), result)
    }

    /// In an undo: what its action returned. `None` if the action failed.
    pub fn result(&self) -> Option<&Bytes> {
        self.result_of(&self.about.name)
    }

    /// In a step that loops over a list: the item that this is about.
    pub fn item(&self) -> Option<&Bytes> {
        self.about.item.as_ref()
    }

    /// The saga that this is a step of.
    pub fn saga(&self) -> &Id {
        &self.about.saga
    }

    /// The name of the step; for an item of a loop with its number: `mail/3`.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Returns whether this is the action or its undo.
    pub fn direction(&self) -> Direction {
        self.about.direction
    }

    /// The fence of this try, to be sent along with the effect.
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// Which try this is.
    pub fn attempt(&self) -> Attempt {
        self.lease.attempt()
    }

    /// The number of this try, from 1 on.
    pub fn tries(&self) -> u16 {
        self.lease.tries()
    }

    /// The lease of this try.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepAbout { saga, name, direction, .. } = &*self.about;
        let mut step = f.debug_struct("Step");
        step.field("saga", saga).field("name", name).field("direction", direction).finish_non_exhaustive()
    }
}

/// The key and operation of an action, for the participant to close before the undo runs. Its `Display` is the value of
/// the field `Onceward-Closes`.
///
/// ```text
/// "5f0c8a0e-…"; operation="POST /charges"
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closes {
    /// The idempotency key that the action has sent, or would have.
    pub key: ChildKey,
    /// The participant's name of the action.
    pub operation: String,
}

impl fmt::Display for Closes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.replace('\\', "\\\\").replace('"', "\\\"");
        write!(f, "\"{}\"; operation=\"{operation}\"", self.key)
    }
}

/// The result of a step: bytes, which every later try and every later step gets as its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepOutput(pub(crate) Bytes);

impl StepOutput {
    /// A value as JSON. Fails if it cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::Invalid, "a value cannot be written as JSON").caused_by(error)
        })?;
        Ok(Self(bytes.into()))
    }
}

impl From<()> for StepOutput {
    fn from((): ()) -> Self {
        Self::default()
    }
}

macro_rules! output_from {
    ($($from:ty),*) => { $(
        impl From<$from> for StepOutput {
            fn from(value: $from) -> Self {
                Self(value.into())
            }
        }
    )* };
}
output_from!(Bytes, Vec<u8>, String, &'static str, &'static [u8]);

/// How a step ends that has not succeeded. `?` on any error is [`StepStop::unknown`], because an error alone does not
/// prove that nothing happened.
#[derive(Clone)]
pub struct StepStop {
    pub(crate) kind: StopKind,
    pub(crate) stopped: Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopKind {
    Refused,
    Failed,
    Unknown,
    Retry,
}

/// The result of a step's code.
pub type StepResult<T = StepOutput> = std::result::Result<T, StepStop>;

impl StepStop {
    /// The participant says that nothing happened: the steps before this one are undone, and this one's undo is not run.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::new(StopKind::Refused, reason)
    }

    /// The participant has answered, it will not succeed, and something may have happened: this step is undone, and those
    /// before it.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::new(StopKind::Failed, reason)
    }

    /// The request was sent, and its result is unknown. Nothing is undone on that: the step is tried again
    /// where the participant honours its key
    /// ([`with_retry_unknown`](crate::SagaBuilder::with_retry_unknown)), and is held for an operator where not.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::new(StopKind::Unknown, reason)
    }

    /// Nothing happened, and another try makes sense: no connection, an overloaded participant. The step is tried again
    /// after a pause; when its tries are used up, it counts as refused.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::new(StopKind::Retry, reason)
    }

    fn new(kind: StopKind, reason: impl Into<String>) -> Self {
        let stopped = match kind {
            StopKind::Unknown => Stopped::unknown(reason.into()),
            _ => Stopped::before_effect(reason.into()),
        };
        Self { kind, stopped }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for StepStop {
    fn from(error: E) -> Self {
        Self { kind: StopKind::Unknown, stopped: error.into() }
    }
}

impl fmt::Display for StepStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stopped.fmt(f)
    }
}

impl fmt::Debug for StepStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepStop({:?}: {self})", self.kind)
    }
}

pub(crate) fn read_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{what} is not the JSON of this type")).caused_by(error)
    })
}
