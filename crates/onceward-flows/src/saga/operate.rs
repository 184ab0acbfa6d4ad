//! What an operator decides about a saga: try a step again, undo the saga, settle an unknown outcome. Needs no code of
//! the saga; a worker continues with what was decided.

use bytes::Bytes;
use onceward::receipt::Status;
use onceward::{
    Ask, Changed, Cursor, Due, Error, ErrorKind, Fingerprint, Id, OnUnknown, Onceward, Result, Settlement,
};

use super::decide::Direction;
use super::definition::{OPERATION, step_policy};
use super::drive::{close_if_not_begun, write_abort};
use super::result::{Ended, Envelope};
use super::signal::wake;
use super::step::step_id;
use super::view::{SagaFilter, SagaPage, SagaView, defined, has_no_undo, list_sagas, view_saga};

/// The result of an operator's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SagaChange {
    /// It is recorded, and the saga continues with it.
    Applied,
    /// There is no such saga, or the step is not in a state that needs the decision.
    NothingToDo,
    /// The saga has ended.
    Ended,
}

/// The settlement of a step whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleStep {
    /// It happened, and this is its result.
    Done(Bytes),
    /// The participant refused it: nothing happened, and it is not to be tried again.
    Refused(String),
    /// It ended without what was asked, and something may have happened: it is undone.
    Failed(String),
    /// It did not happen; it is tried again. Refused while what was sent can still take effect.
    NotDone,
    /// It did not happen and will not, also where what was sent could still take effect.
    ForceNotDone,
}

/// The sagas of a store, as people see them. Needs no code of the sagas.
#[derive(Clone, Debug)]
pub struct StoredSagas {
    onceward: Onceward,
}

impl StoredSagas {
    /// The sagas of this store.
    pub fn new(onceward: &Onceward) -> Self {
        Self { onceward: onceward.clone() }
    }

    /// Lists one page of sagas, looking at no more than `limit` receipts.
    pub async fn list(&self, filter: &SagaFilter, after: Option<Cursor>, limit: usize) -> Result<SagaPage> {
        list_sagas(&self.onceward, filter, after, limit).await
    }

    /// Reads one saga by its id. `None` if there is none.
    pub async fn show(&self, saga: &Id) -> Result<Option<SagaView>> {
        view_saga(&self.onceward, saga).await
    }

    /// Retries dead steps of a saga, or the saga itself if it is dead. `step` names the only one.
    pub async fn retry(&self, saga: &Id, step: Option<(&str, Direction)>) -> Result<SagaChange> {
        let onceward = &self.onceward;
        let Some(found) = onceward.receipt(saga).await? else { return Ok(SagaChange::NothingToDo) };
        if matches!(found.status, Status::Done(_) | Status::Gone(_)) {
            return Ok(SagaChange::Ended);
        }
        let ids = match step {
            Some((name, direction)) => vec![step_id(saga, name, direction)?],
            None => {
                let steps = super::state::load_steps(onceward, saga).await?;
                let dead = steps.iter().filter(|(_, step)| matches!(step.status, Status::Dead(_)));
                dead.map(|(name, _)| saga.step(name)).collect::<Result<Vec<_>>>()?
            }
        };
        let mut change = SagaChange::NothingToDo;
        for id in &ids {
            if onceward.retry_dead(id).await? == Changed::Applied {
                change = SagaChange::Applied;
            }
        }
        if onceward.retry_dead(saga).await? == Changed::Applied {
            change = SagaChange::Applied;
        }
        if change == SagaChange::Applied {
            wake(onceward, saga).await?;
        }
        Ok(change)
    }

    /// Undoes a saga: nothing more of it begins, and what has happened is undone. It comes too late for a saga whose
    /// last step has begun and succeeds: that one is completed; [`show`](Self::show) tells.
    pub async fn undo(&self, saga: &Id, reason: &str) -> Result<SagaChange> {
        let onceward = &self.onceward;
        let Some(found) = onceward.receipt(saga).await? else { return Ok(SagaChange::NothingToDo) };
        if matches!(found.status, Status::Done(_) | Status::Gone(_)) {
            return Ok(SagaChange::Ended);
        }
        write_abort(onceward, saga, reason).await?;
        // A worker that is at it reads the above at the latest at the step that is closed here.
        let envelope = found.status.job().and_then(|job| Envelope::decode(&job.input).ok());
        if let (Some(envelope), Some(name)) = (envelope, saga.operation().strip_prefix(OPERATION)) {
            for line in defined(onceward, name, envelope.version).await? {
                let (kind, name) = line.split_once(' ').unwrap_or(("step", &line));
                let name = name.strip_suffix(" undo").unwrap_or(name);
                let name = match kind {
                    "step" => name.to_owned(),
                    "each" => format!("{name}/list"),
                    "signal" => super::signal::step_name(name),
                    _ => super::signal::fired_name(name),
                };
                close_if_not_begun(onceward, &saga.step(&name)?, &step_policy()).await?;
            }
        }
        if matches!(found.status, Status::Dead(_)) {
            onceward.retry_dead(saga).await?;
        }
        wake(onceward, saga).await?;
        Ok(SagaChange::Applied)
    }

    /// Settles a step whose outcome is unknown, or that is dead. The saga continues with what is recorded.
    pub async fn settle(
        &self,
        saga: &Id,
        step: &str,
        direction: Direction,
        settle: SettleStep,
    ) -> Result<SagaChange> {
        let onceward = &self.onceward;
        let id = step_id(saga, step, direction)?;
        let Some(found) = onceward.receipt(&id).await? else {
            return self.settle_missing_undo(saga, step, direction, settle).await;
        };
        let is_open = matches!(
            (&found.status, found.due),
            (Status::Unknown(_) | Status::Dead(_) | Status::Waiting(_), _) | (Status::Held(_), Due::Over(_))
        );
        if !is_open {
            return Ok(SagaChange::NothingToDo);
        }
        let bytes_max = onceward.body_bytes_max();
        let settlement = match settle {
            SettleStep::Done(value) if value.len() >= bytes_max => {
                let detail = format!("a result of {} bytes; at most {} fit", value.len(), bytes_max - 1);
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
            SettleStep::Done(value) => Settlement::Done(Ended::Succeeded(value).to_outcome(bytes_max)),
            SettleStep::Refused(_) | SettleStep::Failed(_) if direction == Direction::Undo => {
                let detail = "an undo has no other end than success: settle it as done or as not done";
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
            SettleStep::Refused(reason) => Settlement::Done(Ended::Refused(reason).to_outcome(bytes_max)),
            SettleStep::Failed(reason) => Settlement::Done(Ended::Failed(reason).to_outcome(bytes_max)),
            SettleStep::NotDone => Settlement::NotDone,
            SettleStep::ForceNotDone => Settlement::ForceNotDone,
        };
        match onceward.settle(&id, found.status.fence(), &settlement, &step_policy()).await? {
            Changed::Applied => {
                wake(onceward, saga).await?;
                Ok(SagaChange::Applied)
            }
            Changed::NotOwner(_) => Ok(SagaChange::NothingToDo),
        }
    }

    /// A step that failed and has no undo was undone by hand: that is recorded as if an undo had done it.
    async fn settle_missing_undo(
        &self,
        saga: &Id,
        step: &str,
        direction: Direction,
        settle: SettleStep,
    ) -> Result<SagaChange> {
        let onceward = &self.onceward;
        let (Direction::Undo, SettleStep::Done(value)) = (direction, settle) else {
            return Ok(SagaChange::NothingToDo);
        };
        let Some(view) = self.show(saga).await? else { return Ok(SagaChange::NothingToDo) };
        if view.ended.is_some() {
            return Ok(SagaChange::Ended);
        }
        let name = saga.operation().strip_prefix(OPERATION).unwrap_or_default();
        let names = match view.version {
            Some(version) => defined(onceward, name, version).await?,
            None => Vec::new(),
        };
        let action = onceward.receipt(&step_id(saga, step, Direction::Action)?).await?;
        let ended = action.as_ref().and_then(|action| Ended::of_outcome(action.status.outcome()?));
        if !has_no_undo(&names, step) || !matches!(ended, Some(Ended::Failed(_))) {
            return Ok(SagaChange::NothingToDo);
        }
        let policy = step_policy().to_builder().with_on_unknown(OnUnknown::Retry).build()?;
        let ask = Ask::new(step_id(saga, step, Direction::Undo)?, Fingerprint::of(b"undone by hand"), policy);
        let outcome = Ended::Succeeded(value).to_outcome(onceward.body_bytes_max());
        onceward.run(ask, async |_| Ok(outcome)).await?;
        wake(onceward, saga).await?;
        Ok(SagaChange::Applied)
    }
}
