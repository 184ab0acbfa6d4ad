//! Drives one saga: asks [`decide`] for the next thing, does it, records it, until the saga ends or has to wait. It may
//! be stopped and begun again at any point, in any process: everything that it knows is in receipts.
//!
//! On the way forward nothing is read in advance: to begin a step that is done is to get its recorded result. What is
//! recorded is read in full before the first decision that could undo something.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use onceward::receipt::Status;
use onceward::{
    Answer, Ask, Changed, Completed, Error, ErrorKind, Fingerprint, Id, Lease, Onceward, Outcome, Receipt,
    Recorded as IsRecorded, Result, Stopped,
};
use tokio::time::Instant;

use super::decide::{Direction, Next, Progress, UnitKind, UnitProgress, decide};
use super::definition::{Definition, PartKind, StepPart};
use super::perform::Work;
use super::reconcile::{Reconciled, UnknownStep, record_reconciled};
use super::result::{Ended, decode_list};
use super::state::{Recorded, load_steps};
use super::step::{StepAbout, step_id};
use super::worker::SagaCounters;

/// How long a saga that waits for a signal, a person or another run sleeps at most: signals and settlements wake it, and
/// a wake-up may be lost.
const SIGNAL_SLEEP_MAX: Duration = Duration::from_secs(60);
const PERSON_SLEEP: Duration = Duration::from_secs(300);
/// How long after "not yet" a reconcile hook is asked again.
const RECONCILE_PAUSE: Duration = Duration::from_secs(5);
/// Shortest suspension.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// The step whose receipt says that the saga is to be undone.
pub(crate) const ABORT: &str = "abort:";

/// One step, one item, or one pause.
pub(crate) struct Unit {
    pub(crate) part: usize,
    pub(crate) name: String,
    item: Option<Bytes>,
    is_list: bool,
    action: Recorded,
    undo: Recorded,
}

/// One drive of one saga.
struct Drive<'a> {
    definition: &'a Definition,
    onceward: Onceward,
    saga: Id,
    input: Bytes,
    fingerprint: Fingerprint,
    units: Vec<Unit>,
    results: Arc<BTreeMap<String, Bytes>>,
    /// Why the saga is to be undone, if it is not because of a step.
    abort: Option<String>,
    /// Whether everything that is recorded was read.
    is_loaded: bool,
    deadline: Option<Instant>,
}

/// What a drive ends with, if it does not end the saga.
enum Pause {
    For(Duration),
    Failed(Error),
}

impl From<Error> for Pause {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Drives a saga as far as it goes now.
pub(crate) async fn drive(
    definition: &Definition,
    counters: &SagaCounters,
    lease: &Lease,
    input: Bytes,
) -> Result<Outcome, Stopped> {
    let onceward = lease.onceward();
    let bytes_max = onceward.body_bytes_max();
    let mut drive = Drive::new(definition, onceward, lease.id().clone(), input);
    match drive.run(counters).await {
        Ok(ended) => {
            match &ended {
                Ended::Succeeded(_) => counters.completed(),
                _ => counters.undone(),
            }
            Ok(ended.to_outcome(bytes_max))
        }
        Err(Pause::For(pause)) => Err(Stopped::suspend(pause.max(SLEEP_MIN))),
        Err(Pause::Failed(error)) => Err(Stopped::before_effect(error)),
    }
}

impl<'a> Drive<'a> {
    fn new(definition: &'a Definition, onceward: Onceward, saga: Id, input: Bytes) -> Self {
        let units = definition.parts.iter().enumerate();
        let units = units.map(|(part, of)| {
            let is_list = matches!(of.kind, PartKind::Each { .. });
            let name = if is_list { format!("{}/list", of.name) } else { of.name.clone() };
            Unit { is_list, ..Unit::new(part, name) }
        });
        Self {
            units: units.collect(),
            definition,
            onceward,
            saga,
            fingerprint: Fingerprint::of(&input),
            input,
            results: Arc::default(),
            abort: None,
            is_loaded: false,
            deadline: None,
        }
    }

    async fn run(&mut self, counters: &SagaCounters) -> Result<Ended, Pause> {
        self.read_deadline().await?;
        loop {
            let next = decide(&self.progress(), self.abort.is_some(), self.definition.undo_order);
            if !matches!(next, Next::Begin(_) | Next::Completed) && !self.is_loaded {
                self.load().await?;
                continue;
            }
            let is_open = matches!(
                next,
                Next::Begin(_) | Next::Suspend(_) | Next::Await { .. } | Next::NeedsPerson { .. }
            );
            if is_open && self.is_late() && !self.is_undoing() {
                let within = self.definition.deadline.unwrap_or_default();
                self.abort(&format!("it did not end within {within:?}")).await?;
                continue;
            }
            match next {
                Next::Begin(unit) => self.begin(unit).await?,
                Next::Undo(units) => self.undo(&units).await?,
                Next::Close(units) => self.close(&units).await?,
                Next::Await { unit, direction, lease } => self.await_run(unit, direction, lease).await?,
                Next::Suspend(pause) => return Err(Pause::For(self.at_most(pause))),
                Next::NeedsPerson { unit, direction } => {
                    if self.reconcile(unit, direction).await? {
                        continue;
                    }
                    let unit = &self.units[unit];
                    let reason = match &unit.recorded(direction).reason {
                        none if none.is_empty() => &unit.action.reason,
                        reason => reason,
                    };
                    tracing::error!(saga = ?self.saga, step = unit.name, %direction, reason, "a saga needs an operator");
                    counters.needs_person();
                    return Err(Pause::For(self.at_most(PERSON_SLEEP)));
                }
                Next::Completed => return Ok(Ended::Succeeded(self.last_value())),
                Next::Undone => return Ok(Ended::Undone(self.cause())),
            }
        }
    }

    fn progress(&self) -> Vec<UnitProgress> {
        let of = |unit: &Unit| {
            let kind = match &self.definition.parts[unit.part].kind {
                PartKind::Signal { .. } | PartKind::Timer(_) => UnitKind::NoEffect,
                PartKind::Each { .. } if unit.is_list => UnitKind::NoEffect,
                PartKind::Step(step) | PartKind::Each { each: step, .. } => match step.undo {
                    Some(_) => UnitKind::Undoable,
                    None => UnitKind::Final,
                },
            };
            UnitProgress { kind, action: unit.action.progress, undo: unit.undo.progress }
        };
        self.units.iter().map(of).collect()
    }

    fn is_undoing(&self) -> bool {
        let ended = |unit: &Unit| {
            matches!(unit.action.progress, Progress::Refused | Progress::Failed | Progress::Closed)
        };
        self.abort.is_some() || self.units.iter().any(ended)
    }

    /// The value of the last step, which is that of the saga.
    fn last_value(&self) -> Bytes {
        let mut values = self.units.iter().filter(|unit| !unit.is_list).rev();
        values.find_map(|unit| unit.action.value.clone()).unwrap_or_default()
    }

    /// Why the saga was undone.
    fn cause(&self) -> String {
        let ended = |unit: &&Unit| matches!(unit.action.progress, Progress::Refused | Progress::Failed);
        match (&self.abort, self.units.iter().find(ended)) {
            (Some(reason), _) => reason.clone(),
            (None, Some(unit)) => format!("{}: {}", unit.name, unit.action.reason),
            (None, None) => "a step was closed before it began".to_owned(),
        }
    }

    async fn read_deadline(&mut self) -> Result<()> {
        let Some(within) = self.definition.deadline else { return Ok(()) };
        let age = self.onceward.receipt(&self.saga).await?.map_or(Duration::ZERO, |found| found.age.created);
        self.deadline = Some(Instant::now() + within.saturating_sub(age));
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// A pause, or what is left until the deadline.
    fn at_most(&self, pause: Duration) -> Duration {
        match self.deadline {
            Some(deadline) if !self.is_undoing() => {
                pause.min(deadline.saturating_duration_since(Instant::now()))
            }
            _ => pause,
        }
    }

    /// Records that the saga is to be undone, and why.
    async fn abort(&mut self, reason: &str) -> Result<(), Pause> {
        self.abort = Some(write_abort(&self.onceward, &self.saga, reason).await?);
        self.is_loaded = false;
        Ok(())
    }

    /// Reads everything that is recorded.
    async fn load(&mut self) -> Result<(), Pause> {
        let steps = load_steps(&self.onceward, &self.saga).await?;
        if let Some(abort) = steps.get(ABORT).and_then(|receipt| receipt.status.outcome()) {
            self.abort = Some(match Ended::of_outcome(abort) {
                Some(Ended::Succeeded(reason)) => String::from_utf8_lossy(&reason).into_owned(),
                _ => "it was asked for".to_owned(),
            });
        }
        let mut at = 0;
        // Lists add units behind themselves.
        while at < self.units.len() {
            let unit = &self.units[at];
            let (name, part) = (unit.name.clone(), &self.definition.parts[unit.part].kind);
            match part {
                PartKind::Signal { within } => {
                    let signal = steps.get(&super::signal::step_name(&name));
                    let signal = super::signal::recorded(signal, *within);
                    self.record(at, Direction::Action, signal)?;
                }
                PartKind::Timer(_) => {
                    let fired = Recorded::of(steps.get(&super::signal::fired_name(&name)));
                    self.record(at, Direction::Action, fired)?;
                }
                PartKind::Step(_) | PartKind::Each { .. } => {
                    let undo = Recorded::of(steps.get(&format!("{name}/undo")));
                    self.record(at, Direction::Undo, undo)?;
                    self.record(at, Direction::Action, Recorded::of(steps.get(&name)))?;
                }
            }
            at += 1;
        }
        self.is_loaded = true;
        Ok(())
    }

    /// Takes over what is recorded of a unit; a list makes its items units.
    fn record(&mut self, at: usize, direction: Direction, recorded: Recorded) -> Result<(), Pause> {
        let unit = &mut self.units[at];
        if direction == Direction::Undo {
            unit.undo = recorded;
            return Ok(());
        }
        let was = std::mem::replace(&mut unit.action, recorded);
        if was.progress == Progress::Succeeded {
            return Ok(());
        }
        let Some(value) = unit.action.value.clone() else { return Ok(()) };
        let (name, part, is_list) = (unit.name.clone(), unit.part, unit.is_list);
        if is_list {
            let each = &self.definition.parts[part].name;
            let items = decode_list(&value)?.into_iter().enumerate();
            let items = items.map(|(number, item)| Unit {
                item: Some(item),
                ..Unit::new(part, format!("{each}/{number}"))
            });
            let items: Vec<_> = items.collect();
            let behind = at + 1;
            self.units.splice(behind..behind, items);
        } else {
            Arc::make_mut(&mut self.results).insert(name, value);
        }
        Ok(())
    }

    async fn begin(&mut self, at: usize) -> Result<(), Pause> {
        let definition = self.definition;
        let unit = &self.units[at];
        let recorded = match &definition.parts[unit.part].kind {
            PartKind::Step(StepPart { action, policy, .. }) => {
                self.perform(at, Direction::Action, action, policy).await?
            }
            PartKind::Each { list, each } => {
                let work = if unit.is_list { list } else { &each.action };
                self.perform(at, Direction::Action, work, &each.policy).await?
            }
            PartKind::Signal { within } => {
                let reply =
                    super::signal::read_signal(&self.onceward, definition, &self.saga, &unit.name, *within);
                reply.await?
            }
            PartKind::Timer(duration) => {
                super::signal::timer(&self.onceward, definition, &self.saga, &unit.name, *duration).await?
            }
        };
        let is_replayed = recorded.is_replayed;
        self.record(at, Direction::Action, recorded)?;
        // The saga goes on after a pause: somebody may have asked meanwhile that it be undone.
        if is_replayed && !self.is_loaded {
            self.load().await?;
        }
        Ok(())
    }

    async fn undo(&mut self, units: &[usize]) -> Result<(), Pause> {
        let undos = units.iter().map(|&at| {
            let part = &self.definition.parts[self.units[at].part].kind;
            let (PartKind::Step(step) | PartKind::Each { each: step, .. }) = part else {
                unreachable!("only steps are undone")
            };
            let undo = step.undo.as_ref().expect("only steps with an undo are undone");
            self.perform(at, Direction::Undo, undo, &step.undo_policy)
        });
        for (&at, undone) in units.iter().zip(join_all(undos).await) {
            self.record(at, Direction::Undo, undone?)?;
        }
        Ok(())
    }

    fn about(&self, unit: &Unit, direction: Direction) -> StepAbout {
        StepAbout {
            saga: self.saga.clone(),
            name: unit.name.clone(),
            direction,
            input: self.input.clone(),
            item: unit.item.clone(),
            results: self.results.clone(),
        }
    }

    /// Asks the hook of a step about its unknown outcome, and records what it says. `false`: a person is needed.
    async fn reconcile(&mut self, at: usize, direction: Direction) -> Result<bool, Pause> {
        let unit = &self.units[at];
        let (PartKind::Step(step) | PartKind::Each { each: step, .. }) =
            &self.definition.parts[unit.part].kind
        else {
            return Ok(false);
        };
        let Some(hook) = step.reconcile.as_ref().filter(|_| !unit.is_list) else { return Ok(false) };
        let id = step_id(&self.saga, &unit.name, direction)?;
        let found = self.onceward.receipt(&id).await?;
        let Some(found) = found.filter(|found| matches!(found.status, Status::Unknown(_))) else {
            return Ok(false);
        };
        let policy = if direction == Direction::Action { &step.policy } else { &step.undo_policy };
        let said = hook(UnknownStep { about: Arc::new(self.about(unit, direction)) });
        let said = match AssertUnwindSafe(said).catch_unwind().await {
            Ok(said) => said,
            Err(_) => {
                tracing::error!(saga = ?self.saga, step = unit.name, "a reconcile hook panicked");
                Reconciled::NotYet
            }
        };
        match record_reconciled(&self.onceward, &id, &found, said, direction, policy).await? {
            Some(now) => {
                self.record(at, direction, now)?;
                Ok(true)
            }
            None => Err(Pause::For(self.at_most(RECONCILE_PAUSE))),
        }
    }

    /// One try of one direction of a step, or its recorded end.
    async fn perform(
        &self,
        at: usize,
        direction: Direction,
        work: &Work,
        policy: &Arc<onceward::Policy>,
    ) -> Result<Recorded, Pause> {
        let unit = &self.units[at];
        let id = step_id(&self.saga, &unit.name, direction)?;
        let about = self.about(unit, direction);
        // With an input, though an empty one: its tries are then counted, and it waits between them.
        let ask = Ask::new(id.clone(), self.fingerprint, policy.clone()).with_input(Bytes::new());
        let error = match work.perform(&self.onceward, ask, Arc::new(about)).await {
            Ok(Answer::Completed(Completed { outcome, replayed, recorded: IsRecorded::Yes, .. })) => {
                let recorded = Recorded::of_end(Ended::of_outcome(&outcome));
                return Ok(Recorded { is_replayed: replayed, ..recorded });
            }
            Ok(Answer::Completed(_)) => {
                let detail = "the store has not taken the end of a step yet";
                return Err(Pause::Failed(Error::new(ErrorKind::Unavailable, detail)));
            }
            Ok(Answer::Refused(refusal)) => return Ok(Recorded::of_refusal(&refusal)),
            Err(error) => error,
        };
        let recorded = Recorded::of(self.onceward.receipt(&id).await?.as_ref());
        match recorded.progress {
            // Nothing was recorded: the saga as a whole is tried again.
            Progress::NotBegun => Err(Pause::Failed(error)),
            _ if error.kind() != ErrorKind::Stopped => Err(Pause::Failed(error)),
            _ => Ok(recorded),
        }
    }

    /// Closes what has not begun, if it still has not.
    async fn close(&mut self, units: &[usize]) -> Result<(), Pause> {
        for &at in units {
            let unit = &self.units[at];
            let name = match &self.definition.parts[unit.part].kind {
                PartKind::Step(_) | PartKind::Each { .. } => unit.name.clone(),
                PartKind::Signal { .. } => super::signal::step_name(&unit.name),
                PartKind::Timer(_) => super::signal::fired_name(&unit.name),
            };
            let id = self.saga.step(&name)?;
            let recorded = close_if_not_begun(&self.onceward, &id, &self.definition.policy).await?;
            self.record(at, Direction::Action, recorded)?;
        }
        Ok(())
    }

    /// Waits a moment for the run that has a step, then for longer without a worker.
    async fn await_run(&mut self, at: usize, direction: Direction, lease: Duration) -> Result<(), Pause> {
        let unit = &self.units[at];
        let id = step_id(&self.saga, &unit.name, direction)?;
        let policy = match &self.definition.parts[unit.part].kind {
            PartKind::Step(step) | PartKind::Each { each: step, .. } => step.policy.clone(),
            _ => self.definition.signal_policy.clone(),
        };
        let ask = Ask::new(id.clone(), self.fingerprint, policy);
        self.onceward.answer_without_running(&ask).await?;
        let recorded = Recorded::of(self.onceward.receipt(&id).await?.as_ref());
        let is_running = matches!(recorded.progress, Progress::Running { .. });
        self.record(at, direction, recorded)?;
        if is_running { Err(Pause::For(self.at_most(lease.min(SIGNAL_SLEEP_MAX)))) } else { Ok(()) }
    }
}

impl Unit {
    fn new(part: usize, name: String) -> Self {
        let (action, undo) = (Recorded::not_begun(), Recorded::not_begun());
        Self { part, name, item: None, is_list: false, action, undo }
    }

    fn recorded(&self, direction: Direction) -> &Recorded {
        match direction {
            Direction::Action => &self.action,
            Direction::Undo => &self.undo,
        }
    }
}

/// Closes an action for good if it has not begun, by what its receipt says now. What may have taken effect is left.
pub(crate) async fn close_if_not_begun(
    onceward: &Onceward,
    id: &Id,
    policy: &onceward::Policy,
) -> Result<Recorded> {
    let found: Option<Receipt> = onceward.receipt(id).await?;
    let recorded = Recorded::of(found.as_ref());
    let is_open = match recorded.progress {
        Progress::NotBegun => true,
        Progress::Waiting { unknown, .. } => {
            !unknown && matches!(found.as_ref().map(|found| &found.status), Some(Status::Waiting(_)))
        }
        _ => false,
    };
    if !is_open {
        return Ok(recorded);
    }
    match onceward.close_found(id, found.as_ref(), policy).await {
        Ok(Changed::Applied) => Ok(Recorded::new(Progress::Closed, "it was closed: undone")),
        Ok(Changed::NotOwner(now)) => Ok(Recorded::of(now.as_ref())),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            Ok(Recorded::of(onceward.receipt(id).await?.as_ref()))
        }
        Err(error) => Err(error),
    }
}

/// Records that a saga is to be undone, and gives the reason that is recorded: the first one counts.
pub(crate) async fn write_abort(onceward: &Onceward, saga: &Id, reason: &str) -> Result<String> {
    let outcome =
        Ended::Succeeded(Bytes::copy_from_slice(reason.as_bytes())).to_outcome(onceward.body_bytes_max());
    let policy =
        super::definition::step_policy().to_builder().with_on_unknown(onceward::OnUnknown::Retry).build()?;
    let ask = Ask::new(saga.step(ABORT)?, Fingerprint::of(b"undo"), policy);
    let answer = onceward.run(ask, async |_| Ok(outcome)).await?;
    let completed =
        answer.into_result().map_err(|refusal| Error::new(ErrorKind::Conflict, refusal.to_string()))?;
    Ok(match Ended::of_outcome(&completed.outcome) {
        Some(Ended::Succeeded(reason)) => String::from_utf8_lossy(&reason).into_owned(),
        _ => reason.to_owned(),
    })
}
