//! What the receipts API says of sagas and is asked about them. `onceward sagas` prints the same values.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use onceward::Id;
use onceward_flows::{Ended, SagaState, SagaView, SettleStep, StepView};
use onceward_http::admin::extend::{ApiResult, Problem};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The scope of sagas for which no other was given.
pub const SCOPE: &str = "saga";
const OPERATION: &str = "saga:";

/// Which sagas, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SagasAsked {
    /// Only this scope; all of them if absent.
    pub scope: Option<String>,
    /// Only sagas of this name.
    pub name: Option<String>,
    /// Only those that need a person.
    pub needs_person: Option<bool>,
    /// Look at no more than this many receipts, those of steps included; 100 if absent, 1000 at most.
    pub limit: Option<usize>,
    /// The `next` of an earlier page of the same list.
    pub cursor: Option<String>,
}

/// Which saga.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SagaAsked {
    /// Its scope; `saga` if absent.
    pub scope: Option<String>,
    /// Its name.
    pub name: String,
    /// The key that it was started under.
    pub key: String,
}

/// Which dead steps are to be tried again.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySagaAsked {
    /// The scope of the saga; `saga` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Its name.
    pub name: String,
    /// The key that it was started under.
    pub key: String,
    /// Only this step; all that are dead if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// It is about the undo of the step.
    #[serde(default)]
    pub undo: bool,
    /// Who asks; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which saga is to be undone.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoSagaAsked {
    /// The scope of the saga; `saga` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Its name.
    pub name: String,
    /// The key that it was started under.
    pub key: String,
    /// Why: the saga ends with it.
    pub reason: String,
    /// Who asks; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What became of a step.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleSagaAsked {
    /// The scope of the saga; `saga` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Its name.
    pub name: String,
    /// The key that it was started under.
    pub key: String,
    /// The step.
    pub step: String,
    /// It is about the undo of the step.
    #[serde(default)]
    pub undo: bool,
    /// It happened, and this is its result, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// It happened, and this is its result, as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_base64: Option<String>,
    /// The participant refused it, for this reason: nothing happened, and it is not to be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// It ended without what was asked, for this reason, and something may have happened: it is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// It did not happen; it is tried again.
    #[serde(default)]
    pub not_done: bool,
    /// With `not_done`: it will not happen either, although what was sent could still take effect.
    #[serde(default)]
    pub force: bool,
    /// Who asks; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One page of sagas.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct SagasShown {
    /// In an order of the store's own, without their inputs, results and steps.
    pub sagas: Vec<SagaShown>,
    /// Give it as `cursor` to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A saga.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct SagaShown {
    /// Its scope.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// The key that it was started under.
    pub key: String,
    /// The version of its code; absent if its input was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// `waiting`, `running`, `undoing`, `needs-person`, `completed`, `undone` or `closed`.
    pub state: String,
    /// Why it needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_person: Option<NeedsPersonShown>,
    /// What it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedShown>,
    /// Why an operator asked for it to be undone, or that its deadline has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    /// What it was started with, if it is text and was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// What it was started with, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_base64: Option<String>,
    /// How long ago it was started.
    pub created_ms_ago: u64,
    /// How long ago its own receipt changed.
    pub updated_ms_ago: u64,
    /// How often it was driven and neither suspended nor finished.
    pub tries: u16,
    /// Why it could not be driven, the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Its steps and their undos; only of one that was asked for by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepShown>,
}

/// Why a saga needs a person.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct NeedsPersonShown {
    /// The step; absent if it is the saga itself, whose tries are used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// `action` or `undo`.
    pub direction: String,
    /// The state of its receipt.
    pub state: String,
    /// Why, in one line.
    pub reason: String,
}

/// What a step or a saga ended with.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct EndedShown {
    /// `succeeded`, `refused`, `failed`; of a saga also `undone`.
    pub how: String,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The result, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The result, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
}

/// One direction of one step, or a signal, or a timer.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct StepShown {
    /// Its name.
    pub name: String,
    /// `action` or `undo`.
    pub direction: String,
    /// The state of its receipt; absent if it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What it ended with; absent if it has not, or was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedShown>,
    /// Why it was closed without having begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// How often it was tried, as far as that is kept: for a signal or a timer it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u16>,
    /// Why the last try did not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it is tried again at the earliest, or how long its lease lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<u64>,
    /// How long ago it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms_ago: Option<u64>,
    /// How long ago it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_ms_ago: Option<u64>,
}

/// The id of a saga.
pub fn id(scope: Option<&str>, name: &str, key: &str) -> onceward::Result<Id> {
    Id::new(scope.unwrap_or(SCOPE), &format!("{OPERATION}{name}"), key)
}

/// What is settled, and its name in the audit.
pub fn settle_step(asked: &SettleSagaAsked) -> ApiResult<(SettleStep, &'static str)> {
    let base64 = |text: &String| {
        let bytes = BASE64_STANDARD.decode(text);
        bytes.map_err(|_| Problem::Invalid("`done_base64` is no base64".into()))
    };
    let SettleSagaAsked { done, done_base64, refused, failed, not_done, force, .. } = asked;
    Ok(match (done, done_base64, refused, failed, not_done, force) {
        (Some(result), None, None, None, false, false) => (SettleStep::Done(result.clone().into()), "done"),
        (None, Some(result), None, None, false, false) => (SettleStep::Done(base64(result)?.into()), "done"),
        (None, None, Some(reason), None, false, false) => (SettleStep::Refused(reason.clone()), "refused"),
        (None, None, None, Some(reason), false, false) => (SettleStep::Failed(reason.clone()), "failed"),
        (None, None, None, None, true, false) => (SettleStep::NotDone, "not done"),
        (None, None, None, None, true, true) => (SettleStep::ForceNotDone, "not done, by force"),
        _ => {
            let detail = "give one of `done`, `done_base64`, `refused`, `failed` and `not_done: true`, the last one \
                          perhaps with `force: true`";
            return Err(Problem::Invalid(detail.into()));
        }
    })
}

impl SagaShown {
    pub fn new(view: &SagaView) -> Self {
        let (input, input_base64) = text_or_base64(&view.input);
        let steps = view.steps.iter().map(StepShown::new).collect();
        let ended = view.ended.as_ref().map(EndedShown::new);
        Self { ended, input, input_base64, steps, ..Self::in_list(view) }
    }

    /// Without its input, its result and its steps.
    pub fn in_list(view: &SagaView) -> Self {
        let needs_person = match &view.state {
            SagaState::NeedsPerson(needs) => Some(NeedsPersonShown {
                step: needs.step.clone(),
                direction: needs.direction.name().into(),
                state: needs.state.name().into(),
                reason: needs.reason.clone(),
            }),
            _ => None,
        };
        let name = view.id.operation();
        Self {
            scope: view.id.scope().into(),
            name: name.strip_prefix(OPERATION).unwrap_or(name).into(),
            key: view.id.key().into(),
            version: view.version,
            state: view.state.name().into(),
            needs_person,
            ended: view.ended.as_ref().map(EndedShown::without_result),
            undo_reason: view.undo_reason.clone(),
            input: None,
            input_base64: None,
            created_ms_ago: millis(view.created),
            updated_ms_ago: millis(view.updated),
            tries: view.tries,
            last_error: text(&view.note),
            steps: Vec::new(),
        }
    }
}

impl StepShown {
    fn new(step: &StepView) -> Self {
        Self {
            name: step.name.clone(),
            direction: step.direction.name().into(),
            state: step.state.map(|state| state.name().into()),
            ended: step.ended.as_ref().map(EndedShown::new),
            closed: step.closed.map(str::to_owned),
            tries: step.tries,
            last_error: text(&step.note),
            due_in_ms: step.due.map(millis),
            created_ms_ago: step.created.map(millis),
            updated_ms_ago: step.updated.map(millis),
        }
    }
}

impl EndedShown {
    fn new(ended: &Ended) -> Self {
        let (result, result_base64) = match ended {
            Ended::Succeeded(value) => text_or_base64(value),
            _ => (None, None),
        };
        Self { result, result_base64, ..Self::without_result(ended) }
    }

    fn without_result(ended: &Ended) -> Self {
        Self {
            how: ended.name().into(),
            reason: ended.reason().map(str::to_owned),
            result: None,
            result_base64: None,
        }
    }
}

fn text_or_base64(bytes: &Bytes) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

fn text(note: &str) -> Option<String> {
    (!note.is_empty()).then(|| note.to_owned())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
