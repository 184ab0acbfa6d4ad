//! What is recorded of sagas, for people: lists, and one saga with every step. Needs no code of the saga.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use onceward::receipt::{End, Status};
use onceward::{Cursor, Due, Filter, Id, Onceward, Receipt, Result, Scan, ScanTarget, State, TextMatch};

use super::decide::{Direction, Progress, needs_person};
use super::definition::{OPERATION, SCOPE};
use super::drive::ABORT;
use super::result::{Ended, Envelope};
use super::state::{Recorded, load_steps};

/// The state of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SagaState {
    /// It waits for a worker, a timer, a signal, or its next try.
    Waiting,
    /// A worker is driving it.
    Running,
    /// It is being undone.
    Undoing,
    /// It cannot continue without a person.
    NeedsPerson(NeedsPerson),
    /// All its steps have succeeded.
    Completed,
    /// What had happened was undone.
    Undone,
    /// It was cancelled before it began.
    Closed,
}

/// Why a saga needs an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NeedsPerson {
    /// The step; `None` if it is the saga itself, whose tries are used up.
    pub step: Option<String>,
    /// Which direction of it.
    pub direction: Direction,
    /// The state of its receipt: `unknown`, `dead`, or `done` where what was recorded does not let the saga continue.
    pub state: State,
    /// Why, in one line.
    pub reason: String,
}

impl SagaState {
    /// Its name in tables and answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Undoing => "undoing",
            Self::NeedsPerson(_) => "needs-person",
            Self::Completed => "completed",
            Self::Undone => "undone",
            Self::Closed => "closed",
        }
    }
}

/// A saga, as it was recorded at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaView {
    /// Its id.
    pub id: Id,
    /// The version of its code; `None` if its input was erased.
    pub version: Option<u32>,
    /// The state of the saga.
    pub state: SagaState,
    /// Its end.
    pub ended: Option<Ended>,
    /// Why its undo was asked for, or that its deadline has passed.
    pub undo_reason: Option<String>,
    /// The input of the saga.
    pub input: Bytes,
    /// How long ago it was started.
    pub created: Duration,
    /// How long ago its own receipt changed.
    pub updated: Duration,
    /// How often it was driven and neither suspended nor finished.
    pub tries: u16,
    /// Why it could not be driven, the last time.
    pub note: String,
    /// Its steps and their undos, in the order of the definition as far as that is known.
    pub steps: Vec<StepView>,
}

/// One direction of one step, or a signal, or a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// Whether it is the action or its undo.
    pub direction: Direction,
    /// The state of its receipt; `None` if it has not begun.
    pub state: Option<State>,
    /// Its end; `None` if it has not, or was closed.
    pub ended: Option<Ended>,
    /// Why it was closed without having begun.
    pub closed: Option<&'static str>,
    /// How often it was tried, as far as that is kept: for a signal or a timer it is not.
    pub tries: Option<u16>,
    /// Why the last try did not work.
    pub note: String,
    /// When it is tried again at the earliest, or how long its lease lasts.
    pub due: Option<Duration>,
    /// How long ago it began.
    pub created: Option<Duration>,
    /// How long ago it changed.
    pub updated: Option<Duration>,
}

/// Which sagas to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaFilter {
    /// Only of this name.
    pub name: Option<String>,
    /// Only of this scope.
    pub scope: Option<String>,
    /// Only those whose receipt is in this state. Those that need an operator are waiting.
    pub state: Option<State>,
}

impl SagaFilter {
    /// Sets the only name; `None` for any.
    pub fn with_name(mut self, name: impl Into<Option<String>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the only scope; `None` for any.
    pub fn with_scope(mut self, scope: impl Into<Option<String>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets the only state of the saga's receipt; `None` for any.
    pub fn with_state(mut self, state: impl Into<Option<State>>) -> Self {
        self.state = state.into();
        self
    }
}

/// One page of sagas.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SagaPage {
    /// The sagas.
    pub sagas: Vec<SagaView>,
    /// Where to continue; `None` at the end.
    pub next: Option<Cursor>,
}

/// Lists one page of sagas, looking at no more than `limit` receipts.
pub(crate) async fn list_sagas(
    onceward: &Onceward,
    filter: &SagaFilter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<SagaPage> {
    let operation = match &filter.name {
        Some(name) => TextMatch::Is(format!("{OPERATION}{name}")),
        None => TextMatch::StartsWith(OPERATION.to_owned()),
    };
    let scan = Filter::default().with_operation(operation);
    let scan = scan.with_scope(filter.scope.clone()).with_state(filter.state);
    let page = onceward.list(&Scan::new(ScanTarget::Matching(scan), limit).with_after(after)).await?;
    let mut sagas = Vec::new();
    if let Some((_, unreadable)) = page.unreadable.into_iter().next() {
        return Err(unreadable.error);
    }
    for (id, receipt) in page.found {
        if !id.is_step() {
            sagas.push(view_of(onceward, id, receipt).await?);
        }
    }
    Ok(SagaPage { sagas, next: page.next })
}

/// Reads one saga by its id. `None` if there is none.
pub(crate) async fn view_saga(onceward: &Onceward, id: &Id) -> Result<Option<SagaView>> {
    match onceward.receipt(id).await? {
        Some(receipt) => view_of(onceward, id.clone(), receipt).await.map(Some),
        None => Ok(None),
    }
}

async fn view_of(onceward: &Onceward, id: Id, receipt: Receipt) -> Result<SagaView> {
    let steps = load_steps(onceward, &id).await?;
    let job = receipt.status.job();
    let envelope = job.and_then(|job| Envelope::decode(&job.input).ok());
    let name = id.operation().strip_prefix(OPERATION).unwrap_or_default();
    let names = match &envelope {
        Some(envelope) => defined(onceward, name, envelope.version).await?,
        None => Vec::new(),
    };
    let ended = receipt.status.outcome().and_then(Ended::of_outcome);
    let undo_reason = steps.get(ABORT).and_then(|abort| match Ended::of_outcome(abort.status.outcome()?) {
        Some(Ended::Succeeded(reason)) => Some(String::from_utf8_lossy(&reason).into_owned()),
        _ => None,
    });
    let views = step_views(&names, &steps);
    let state = state_of(&receipt, ended.as_ref(), undo_reason.is_some(), &views, &names);
    let views = views.into_iter().map(|(view, _)| view).collect();
    Ok(SagaView {
        state,
        version: envelope.as_ref().map(|envelope| envelope.version),
        ended,
        undo_reason,
        input: envelope.map(|envelope| envelope.input).unwrap_or_default(),
        created: receipt.age.created,
        updated: receipt.age.updated,
        tries: job.map_or(0, |job| job.started),
        note: receipt.status.note().to_owned(),
        steps: views,
        id,
    })
}

fn state_of(
    receipt: &Receipt,
    ended: Option<&Ended>,
    is_undone: bool,
    steps: &[(StepView, Recorded)],
    names: &[String],
) -> SagaState {
    let own = |state| {
        let (direction, reason) = (Direction::Action, receipt.status.note().to_owned());
        SagaState::NeedsPerson(NeedsPerson { step: None, direction, state, reason })
    };
    match &receipt.status {
        Status::Done(done) => match (&done.end, ended) {
            (End::Closed(_), _) => return SagaState::Closed,
            (End::Outcome(_), Some(Ended::Succeeded(_))) => return SagaState::Completed,
            (End::Outcome(_), _) => return SagaState::Undone,
        },
        Status::Gone(_) => return SagaState::Closed,
        Status::Dead(_) => return own(State::Dead),
        Status::Unknown(_) => return own(State::Unknown),
        Status::Waiting(_) | Status::Held(_) => {}
    }
    let is_stuck = |(step, recorded): &&(StepView, Recorded)| {
        step.state == Some(State::Unknown) || needs_person(step.direction, recorded.progress)
    };
    if let Some((step, recorded)) = steps.iter().rev().find(is_stuck) {
        return SagaState::NeedsPerson(NeedsPerson {
            step: Some(step.name.clone()),
            direction: step.direction,
            state: step.state.unwrap_or(State::Unknown),
            reason: recorded.reason.clone(),
        });
    }
    let undone = |name: &str| {
        let of = |(step, recorded): &(StepView, Recorded)| {
            step.name == name && step.direction == Direction::Undo && recorded.progress == Progress::Succeeded
        };
        steps.iter().any(of)
    };
    let left_behind = |(step, recorded): &&(StepView, Recorded)| {
        step.direction == Direction::Action
            && recorded.progress == Progress::Failed
            && has_no_undo(names, &step.name)
            && !undone(&step.name)
    };
    if let Some((step, recorded)) = steps.iter().rev().find(left_behind) {
        return SagaState::NeedsPerson(NeedsPerson {
            step: Some(step.name.clone()),
            direction: Direction::Undo,
            state: State::Done,
            reason: format!("it failed and has no undo: {}", recorded.reason),
        });
    }
    let has_ended = |(step, _): &(StepView, Recorded)| {
        step.direction == Direction::Action
            && (step.closed.is_some() || matches!(step.ended, Some(Ended::Refused(_) | Ended::Failed(_))))
    };
    match receipt.status {
        _ if is_undone || steps.iter().any(has_ended) => SagaState::Undoing,
        Status::Held(_) => SagaState::Running,
        _ => SagaState::Waiting,
    }
}

/// Whether a step, or an item of a step that loops, has no undo by its definition.
pub(crate) fn has_no_undo(names: &[String], step: &str) -> bool {
    let of_list = step.split_once('/').filter(|(_, item)| item.parse::<usize>().is_ok());
    let line = match of_list {
        Some((each, _)) => format!("each {each}"),
        None => format!("step {step}"),
    };
    names.contains(&line)
}

/// First what the definition names, each with its undo or its items; then everything else that is recorded.
fn step_views(names: &[String], steps: &BTreeMap<String, Receipt>) -> Vec<(StepView, Recorded)> {
    let mut views = Vec::new();
    let mut shown = std::collections::BTreeSet::new();
    for line in names {
        let (kind, name) = line.split_once(' ').unwrap_or(("step", line));
        let name = name.strip_suffix(" undo").unwrap_or(name);
        let mut show = |step: String, direction| {
            if shown.insert(step.clone()) {
                let shown = step.strip_suffix("/undo").unwrap_or(&step).to_owned();
                views.push(StepView::of(shown, direction, steps.get(&step)));
            }
        };
        match kind {
            "signal" | "timer" => show(format!("{kind}:{name}"), Direction::Action),
            "each" => {
                show(format!("{name}/list"), Direction::Action);
                let prefix = format!("{name}/");
                let mut items: Vec<usize> =
                    steps.keys().filter_map(|step| step.strip_prefix(&prefix)?.parse().ok()).collect();
                items.sort_unstable();
                for item in items {
                    show(format!("{prefix}{item}"), Direction::Action);
                    if steps.contains_key(&format!("{prefix}{item}/undo")) {
                        show(format!("{prefix}{item}/undo"), Direction::Undo);
                    }
                }
            }
            _ => {
                show(name.to_owned(), Direction::Action);
                if steps.contains_key(&format!("{name}/undo")) {
                    show(format!("{name}/undo"), Direction::Undo);
                }
            }
        }
    }
    for (step, receipt) in steps {
        let is_shown = step == ABORT || step.starts_with("wait:") || step.ends_with("/fired");
        if is_shown || shown.contains(step) {
            continue;
        }
        let (name, direction) = match step.strip_suffix("/undo") {
            Some(name) => (name, Direction::Undo),
            None => (step.as_str(), Direction::Action),
        };
        views.push(StepView::of(name.to_owned(), direction, Some(receipt)));
    }
    views
}

impl StepView {
    fn of(name: String, direction: Direction, receipt: Option<&Receipt>) -> (Self, Recorded) {
        let recorded = Recorded::of(receipt);
        let status = receipt.map(|receipt| &receipt.status);
        let closed = match status {
            Some(Status::Done(done)) => match &done.end {
                End::Closed(why) => Some(why.name()),
                End::Outcome(_) => None,
            },
            _ => None,
        };
        let is_done = matches!(status, Some(Status::Done(_)));
        // A lease that has ended in silence is unknown, though that is not written yet.
        let state = match (status, recorded.progress) {
            (Some(Status::Held(held)), Progress::Waiting { .. })
                if held.on_unknown == onceward::OnUnknown::Hold =>
            {
                Some(State::Unknown)
            }
            (status, _) => status.map(Status::state),
        };
        let view = Self {
            name,
            direction,
            state,
            ended: status.and_then(Status::outcome).and_then(Ended::of_outcome),
            closed,
            tries: status.and_then(Status::job).map(|job| job.started),
            note: status.map(|status| status.note().to_owned()).unwrap_or_default(),
            due: match receipt.map(|receipt| receipt.due) {
                Some(Due::In(left)) if !is_done => Some(left),
                _ => None,
            },
            created: receipt.map(|receipt| receipt.age.created),
            updated: receipt.map(|receipt| receipt.age.updated),
        };
        (view, recorded)
    }
}

/// The receipt that records the steps of a version.
pub(crate) fn definition_id(name: &str, version: u32) -> Result<Id> {
    Id::new(SCOPE, "saga-definition", &format!("{name}@{version}"))
}

/// The lines of a definition; none if it was never recorded.
pub(crate) async fn defined(onceward: &Onceward, name: &str, version: u32) -> Result<Vec<String>> {
    let Ok(id) = definition_id(name, version) else { return Ok(Vec::new()) };
    let receipt = onceward.receipt(&id).await?;
    let outcome = receipt.as_ref().and_then(|receipt| receipt.status.outcome());
    let text =
        outcome.map(|outcome| String::from_utf8_lossy(outcome.body()).into_owned()).unwrap_or_default();
    Ok(text.lines().map(str::to_owned).collect())
}
