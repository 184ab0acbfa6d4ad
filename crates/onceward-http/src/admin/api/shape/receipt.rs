//! The types of the receipts API for showing and listing receipts.

use std::time::Duration;

use onceward::receipt::{Done, End, Held, Prior, Receipt, Status};
use onceward::{Age, Attempt, Due, Id, OnUnknown, Unreadable};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{OutcomeShown, Verdict};

/// The state of one intent.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct ReceiptShown {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// Where it is in its life.
    pub state: State,
    /// The run it speaks of; settling names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Until the next try may begin, or until the lease, the retention or the tombstone ends; negative once it has;
    /// absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<i64>,
    /// How long ago it was first written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms_ago: Option<u64>,
    /// How long ago it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_ms_ago: Option<u64>,
    /// Of a held one, what kind of owner holds it: `run` (a run of a process; it ends with that process) or `ticket` (a
    /// claim through the receipts API).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The first eight digits of the attempt that holds it, or held it last: enough to find it in logs and in
    /// `Onceward-Attempt`, not enough to forge a ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// How often it was tried since the key was last free. Of one that carries its input: since it was last settled or
    /// retried by an operator, and without tries that were suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u16>,
    /// Of one that carries its input: how large that is, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Why its last try did not come to an outcome, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Earlier runs: `settled` (the outcome of one was unknown and was settled as not done) or
    /// `unknown` (one may have had its effect).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<String>,
    /// Of a held one whose lease has ended: `hold` or `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<String>,
    /// Of an unknown one, how it came about: `lease_ended`, `reported`, `panicked` or `dropped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a done one: whether it got done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Of one that was closed without an outcome: `cancelled`, `discarded` or `undone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Of a done one that was asked for by itself: what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeShown>,
    /// Why the stored receipt cannot be read, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Where a receipt is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No run holds it; a worker or a request begins its next try.
    Waiting,
    /// A run holds the lease.
    Held,
    /// The outcome is known, or the intent was closed.
    Done,
    /// The effect may or may not have happened; it must be settled.
    Unknown,
    /// The maximum number of tries was reached; an operator must decide.
    Dead,
    /// The outcome was forgotten at the end of its retention; the key is still refused.
    Gone,
}

/// One page of receipts.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ReceiptsShown {
    /// In an order of the store's own, without their outcomes.
    pub receipts: Vec<ReceiptShown>,
    /// Give it as `cursor` to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which receipt.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ReceiptAsked {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
}

/// Which receipts, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ListAsked {
    /// Only this scope.
    pub scope: Option<String>,
    /// Only this operation.
    pub operation: Option<String>,
    /// Only operations that begin like this.
    pub operation_prefix: Option<String>,
    /// Only this key.
    pub key: Option<String>,
    /// Only this state.
    #[param(inline)]
    pub state: Option<State>,
    /// Only those whose last error contains this text.
    pub error: Option<String>,
    /// Only those that were created at least this long ago.
    pub older_than_ms: Option<u64>,
    /// Only those that were created less than this long ago.
    pub younger_than_ms: Option<u64>,
    /// No more than this many; 100 if absent, 1000 at most.
    pub limit: Option<usize>,
    /// The `next` of an earlier page of the same list.
    pub cursor: Option<String>,
}

impl ReceiptShown {
    /// With its outcome.
    pub(in crate::admin) fn new(id: &Id, receipt: &Receipt) -> Self {
        let mut shown = Self::without_body(id, receipt);
        shown.outcome = receipt.status.outcome().map(OutcomeShown::new);
        shown
    }

    /// Without its outcome: for lists and refusals.
    pub(in crate::admin) fn without_body(id: &Id, receipt: &Receipt) -> Self {
        let mut shown = Self::bare(id, receipt.status.state().into(), Some(receipt.due), Some(receipt.age));
        shown.fence = Some(receipt.status.fence().0);
        shown.tries = tries(&receipt.status);
        shown.input_bytes = receipt.status.job().map(|job| job.input.len() as u64);
        shown.last_error = Some(receipt.status.note().to_owned()).filter(|note| !note.is_empty());
        let attempt = receipt.status.claim().map(|claim| claim.attempt);
        shown.attempt = attempt
            .filter(|attempt| *attempt != Attempt::NONE)
            .map(|attempt| attempt.to_string()[..ATTEMPT_DIGITS].to_owned());
        match &receipt.status {
            Status::Held(Held { on_unknown, prior, owner, .. }) => {
                shown.owner = Some(owner.name().into());
                shown.prior = prior_name(*prior);
                shown.on_unknown = receipt.due.is_over().then(|| on_unknown.name().into());
            }
            Status::Waiting(waiting) => shown.prior = prior_name(waiting.prior),
            // Another one may be tried again as it is.
            Status::Dead(dead) if dead.on_unknown == OnUnknown::Hold => shown.prior = prior_name(dead.prior),
            Status::Dead(_) => {}
            Status::Unknown(unknown) => shown.reason = Some(unknown.reason.name().into()),
            Status::Done(Done { end: End::Outcome(outcome), .. }) => {
                shown.verdict = Some(Verdict::of(outcome));
            }
            Status::Done(Done { end: End::Closed(closed), .. }) => {
                shown.closed = Some(closed.name().into());
            }
            Status::Gone(_) => {}
        }
        shown
    }

    /// One that cannot be read: it must not hide. `state` is the one that was asked for.
    pub(in crate::admin) fn unreadable(id: &Id, state: Option<onceward::State>, found: &Unreadable) -> Self {
        let state = found.state.or(state).map_or(State::Unknown, Into::into);
        Self { unreadable: Some(found.error.to_string()), ..Self::bare(id, state, found.due, found.age) }
    }

    fn bare(id: &Id, state: State, due: Option<Due>, age: Option<Age>) -> Self {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let millis_ago = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            scope: id.scope().into(),
            operation: id.operation().into(),
            key: id.key().into(),
            state,
            fence: None,
            due_in_ms: match due {
                None | Some(Due::Never) => None,
                Some(Due::In(remaining)) => Some(millis(remaining)),
                Some(Due::Over(ago)) => Some(-millis(ago)),
            },
            created_ms_ago: age.map(|age| millis_ago(age.created)),
            updated_ms_ago: age.map(|age| millis_ago(age.updated)),
            owner: None,
            attempt: None,
            tries: None,
            input_bytes: None,
            last_error: None,
            prior: None,
            on_unknown: None,
            reason: None,
            verdict: None,
            closed: None,
            outcome: None,
            unreadable: None,
        }
    }
}

/// Digits of an attempt that are shown. With all of them any caller can complete the claim.
const ATTEMPT_DIGITS: usize = 8;

fn tries(status: &Status) -> Option<u16> {
    if let Some(job) = status.job() {
        return Some(job.started);
    }
    status.claim().map(|claim| claim.tries)
}

fn prior_name(prior: Prior) -> Option<String> {
    match prior {
        Prior::Nothing => None,
        Prior::Settled => Some("settled".into()),
        Prior::Unknown => Some("unknown".into()),
    }
}

impl State {
    /// As it is written in the API.
    pub fn name(self) -> &'static str {
        onceward::State::from(self).name()
    }
}

impl From<State> for onceward::State {
    fn from(state: State) -> Self {
        match state {
            State::Waiting => Self::Waiting,
            State::Held => Self::Held,
            State::Done => Self::Done,
            State::Unknown => Self::Unknown,
            State::Dead => Self::Dead,
            State::Gone => Self::Gone,
        }
    }
}

impl From<onceward::State> for State {
    fn from(state: onceward::State) -> Self {
        match state {
            onceward::State::Waiting => Self::Waiting,
            onceward::State::Held => Self::Held,
            onceward::State::Done => Self::Done,
            onceward::State::Unknown => Self::Unknown,
            onceward::State::Dead => Self::Dead,
            onceward::State::Gone => Self::Gone,
        }
    }
}
