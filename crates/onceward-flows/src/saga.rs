//! Sagas: steps in several places that succeed together or are undone, each with an idempotency key and a recorded result.
//!
//! ```text
//! start ─▶ a receipt with input (saga:NAME, key), enqueued
//!            worker: decide ─▶ perform ─▶ recorded in the step's own receipt ─▶ decide …
//!            #reserve          action of a step          #reserve/undo   its undo
//!            #mail/list, #mail/0 …   a step that loops   #signal:NAME    a signal
//!            #timer:NAME, #wait:NAME a timer's beginning #abort:         it is to be undone, and why
//! ```
//!
//! * `decide.rs` knows when something is undone; it is pure. `drive.rs` does what it says, `perform.rs` runs the code of
//!   one step.
//! * The claim of an action is the registration of its undo: there is no moment at which an action can run and its undo
//!   would not be known to be needed.
//! * A saga may be driven twice at the same time, by a worker that has lost its lease without knowing it. That is
//!   harmless, because each step has a receipt of its own, and because nothing is undone before every action is done or
//!   closed.

mod decide;
mod definition;
mod drive;
#[cfg(feature = "http")]
pub mod http;
mod operate;
mod perform;
mod reconcile;
#[cfg(feature = "http")]
mod request;
mod result;
mod signal;
mod state;
mod step;
mod view;
mod worker;

use std::sync::Arc;

use bytes::Bytes;
use onceward::{
    Answer, Ask, Enqueued, Error, ErrorKind, Fingerprint, Id, Join, Onceward, Outcome, Refusal, Result,
    Worker,
};

pub use decide::{Direction, UndoOrder};
pub use definition::{SAGA_NAME_BYTES_MAX, STEPS_MAX, SagaBuilder};
pub use operate::{SagaChange, SettleStep, StoredSagas};
pub use reconcile::{Reconciled, UnknownStep};
#[cfg(feature = "http")]
pub use request::StepRequest;
pub use result::{Ended, ITEMS_MAX};
pub use signal::Signalled;
pub use step::{Closes, Step, StepOutput, StepResult, StepStop};
pub use view::{NeedsPerson, SagaFilter, SagaPage, SagaState, SagaView, StepView};
pub use worker::{SagaCounts, Sagas};

use definition::{Definition, PartKind, SCOPE, check_name, invalid};
use result::Envelope;

/// A saga: steps that succeed together or are undone, each with an idempotency key of its own. Cheap to clone.
///
/// ```
/// # use onceward_flows::*;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let onceward = onceward_stores::in_memory();
/// async fn reserve(step: Step) -> StepResult<String> {
///     let key = step.key()?; // send it to the participant: the same on every try
///     Ok(format!("seat 12, reserved with {key}"))
/// }
/// async fn release(_: Step) -> StepResult<()> { Ok(()) }
/// async fn charge(_: Step) -> StepResult<String> { Err(StepStop::refused("card declined")) }
/// async fn refund(_: Step) -> StepResult<()> { Ok(()) }
///
/// let saga = Saga::builder("order")
///     .step("reserve", reserve).undo(release)
///     .step("charge", charge).undo(refund)
///     .build()?;
/// saga.start(&onceward, "order-81", "{}").await?; // any worker, in any process, continues with it
/// saga.worker(&onceward)?.run_once().await?;
///
/// let view = saga.view(&onceward, "order-81").await?.unwrap();
/// assert_eq!(view.ended, Some(Ended::Undone("charge: card declined".into())));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Saga {
    definition: Arc<Definition>,
    scope: Arc<str>,
}

impl Saga {
    /// A builder for a saga of this name.
    pub fn builder(name: &str) -> SagaBuilder {
        SagaBuilder::new(name)
    }

    fn of(definition: Definition) -> Self {
        Self { definition: Arc::new(definition), scope: SCOPE.into() }
    }

    /// The same saga for another scope: a tenant, an account. Sagas of different scopes may have the same key. Workers
    /// drive the sagas of all scopes.
    pub fn in_scope(&self, scope: &str) -> Self {
        Self { scope: scope.into(), ..self.clone() }
    }

    /// The name of the saga.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Its version.
    pub fn version(&self) -> u32 {
        self.definition.version
    }

    /// The id of one saga: that of its receipt.
    pub fn id(&self, key: &str) -> Result<Id> {
        Id::new(&self.scope, &self.definition.operation(), key)
    }

    /// Starts a saga under a key. Started again with the same key and input, also by another version of this code, it is
    /// [already there](Enqueued::AlreadyThere). Fails if this version was recorded with other steps.
    pub async fn start(&self, onceward: &Onceward, key: &str, input: impl Into<Bytes>) -> Result<Enqueued> {
        self.record_definition(onceward).await?;
        onceward.enqueue(self.ask(key, input.into())?).await
    }

    /// Starts a saga and drives it here, as far as it goes now. Its receipt is claimed as it is written, so that no worker
    /// has to find it first: two writes for the saga itself instead of three writes and a read. A saga that has been
    /// started before is driven too, unless another process does it.
    ///
    /// Run workers all the same. They go on with what waits (for a timer, a signal, a pause between tries), and with what
    /// is left if this process dies or this future is dropped.
    ///
    /// ```
    /// # use onceward_flows::*;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let onceward = onceward_stores::in_memory();
    /// let saga = Saga::builder("order").step("ship", |_: Step| async { StepResult::Ok("shipped") }).build()?;
    /// let driven = saga.run(&onceward, "order-81", "{}").await?;
    /// assert_eq!(driven, Driven::Ended(Ended::Succeeded("shipped".into())));
    /// # Ok(()) }
    /// ```
    pub async fn run(&self, onceward: &Onceward, key: &str, input: impl Into<Bytes>) -> Result<Driven> {
        self.record_definition(onceward).await?;
        let ask = self.ask(key, input.into())?;
        match onceward.run(ask, worker::drive_alone(&self.definition)).await {
            Ok(Answer::Completed(completed)) => match Ended::of_outcome(&completed.outcome) {
                Some(ended) => Ok(Driven::Ended(ended)),
                None => Err(Error::new(ErrorKind::Damaged, "what the saga ended with cannot be read")),
            },
            Ok(Answer::Refused(Refusal::InProgress { .. } | Refusal::Dead { .. })) => Ok(Driven::Continues),
            Ok(Answer::Refused(refusal)) => Ok(Driven::Refused(refusal)),
            // It is suspended, or could not be driven now: what that was is in its receipt.
            Err(error) if error.kind() == ErrorKind::Stopped => Ok(Driven::Continues),
            Err(error) => Err(error),
        }
    }

    /// Starts a saga inside a transaction that the caller holds: it exists when that transaction commits. On SQLite, which
    /// has one writer at a time, [`record`](Self::record) the definition first. Call
    /// [`Onceward::wake_workers`] after the commit, or leave it to the workers' next look.
    pub async fn start_in<J: Join + ?Sized>(
        &self,
        onceward: &Onceward,
        tx: &mut J,
        key: &str,
        input: impl Into<Bytes>,
    ) -> Result<Enqueued> {
        self.record_definition(onceward).await?;
        onceward.enqueue_in(tx, &self.ask(key, input.into())?).await
    }

    /// Sends a signal to a saga that waits for it, or will. The first one counts: the same one again is
    /// [`Signalled::Repeated`], another payload under the same name is an error, and so is one that comes after the saga
    /// has stopped waiting.
    pub async fn signal(
        &self,
        onceward: &Onceward,
        key: &str,
        name: &str,
        payload: impl Into<Bytes>,
    ) -> Result<Signalled> {
        check_name("signal", name)?;
        let signals = || {
            let parts = self.definition.parts.iter();
            parts.filter(|part| matches!(part.kind, PartKind::Signal { .. })).map(|part| part.name.as_str())
        };
        if !signals().any(|signal| signal == name) {
            let known = signals().collect::<Vec<_>>().join(", ");
            return Err(invalid(format!(
                "the saga `{}` waits for no signal `{name}`; it waits for: {known}",
                self.name()
            )));
        }
        signal::send(onceward, &self.definition, &self.id(key)?, name, payload.into()).await
    }

    /// Reads a saga: its state, and every step with its result, tries and times. `None` if there is none.
    pub async fn view(&self, onceward: &Onceward, key: &str) -> Result<Option<SagaView>> {
        view::view_saga(onceward, &self.id(key)?).await
    }

    /// A worker for this saga alone; see [`Sagas`] for several.
    pub fn worker(&self, onceward: &Onceward) -> Result<Worker> {
        Sagas::new().with_saga(self).worker(onceward.clone())
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    fn ask(&self, key: &str, input: Bytes) -> Result<Ask> {
        let fingerprint = Fingerprint::of(&input);
        let Definition { version, digest, .. } = *self.definition;
        let envelope = Envelope { version, digest, input };
        Ok(Ask::new(self.id(key)?, fingerprint, self.definition.policy.clone()).with_input(envelope.encode()))
    }

    /// Records the steps of this version, as every start does: at the start of a process, so that no transaction has to
    /// wait for it. Fails if this version was recorded with other steps.
    pub async fn record(&self, onceward: &Onceward) -> Result<()> {
        self.record_definition(onceward).await
    }

    /// Records the steps of this version; the same version with other steps is refused. From the second time on the
    /// engine answers from memory.
    async fn record_definition(&self, onceward: &Onceward) -> Result<()> {
        // A store with one writer would wait for the transaction that a saga is started in.
        if self.definition.is_recorded_by(onceward) {
            return Ok(());
        }
        let Definition { name, version, digest, .. } = &*self.definition;
        let text = self.definition.text();
        let id = view::definition_id(name, *version)?;
        let ask = Ask::new(id, Fingerprint::new(0, *digest), definition::definition_policy());
        match onceward.run(ask, async |_| Ok(Outcome::succeeded(text.into_bytes()))).await? {
            Answer::Completed(_) => {
                self.definition.recorded_by(onceward);
                Ok(())
            }
            Answer::Refused(Refusal::KeyReused) => {
                let detail = format!(
                    "version {version} of the saga `{name}` is recorded with other steps; give the changed one a new \
                     version"
                );
                Err(Error::new(ErrorKind::Conflict, detail))
            }
            Answer::Refused(refusal) => {
                let detail =
                    format!("version {version} of the saga `{name}` cannot be recorded now: {refusal}");
                Err(Error::new(ErrorKind::Unavailable, detail))
            }
        }
    }
}

/// What became of a saga that was [started and driven](Saga::run) here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driven {
    /// It has ended.
    Ended(Ended),
    /// It waits, or another process drives it; [`Saga::view`] tells. Workers go on with it.
    Continues,
    /// The key was used with another input, was cancelled, or is past its retention.
    Refused(Refusal),
}

impl std::fmt::Debug for Saga {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Saga({}@{})", self.name(), self.version())
    }
}

#[cfg(test)]
#[path = "saga/saga_test.rs"]
mod tests;
