//! Receipts as they are shown and asked for.

use onceward::receipt::{Doubt, Held, Receipt, Status};
use onceward::{Due, Found, Id, OnUnknown, codec};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{OutcomeShown, Verdict};

/// What became of one intent.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct ReceiptShown {
    /// Who asked.
    pub scope: String,
    /// What for.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// Where it is in its life.
    pub state: State,
    /// The run it speaks of; settling names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Until the lease, the retention or the tombstone ends; negative once it has; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<i64>,
    /// Of a held one whose lease has ended: `hold` or `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<String>,
    /// Of an unknown one, how it came about: `lease_ended`, `reported`, `panicked` or `dropped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Of a done one: whether it got done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Of a done one that was asked for by itself: what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeShown>,
    /// Why the stored receipt cannot be read, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Where a receipt is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Somebody has the lease.
    Held,
    /// The outcome is known.
    Done,
    /// The effect may or may not have happened; somebody has to settle it.
    Unknown,
    /// The outcome was forgotten at the end of its retention; the key is still refused.
    Gone,
}

/// One page of receipts.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ReceiptsShown {
    /// In an order of the store's own, without their outcomes.
    pub receipts: Vec<ReceiptShown>,
    /// Give it as `cursor` to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which receipt.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ReceiptAsked {
    /// Who asked.
    pub scope: String,
    /// What for.
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
    /// Only this state.
    #[param(inline)]
    pub state: Option<State>,
    /// No more than this many; 100 if absent, 1000 at most.
    pub limit: Option<usize>,
    /// The `next` of an earlier page of the same list.
    pub cursor: Option<String>,
}

impl ReceiptShown {
    /// With its outcome.
    pub fn new(id: &Id, receipt: &Receipt) -> Self {
        let mut shown = Self::without_body(id, receipt);
        if let Status::Done(done) = &receipt.status {
            shown.outcome = Some(OutcomeShown::new(&done.outcome));
        }
        shown
    }

    /// Without its outcome: for lists and refusals.
    pub fn without_body(id: &Id, receipt: &Receipt) -> Self {
        let mut shown = Self::bare(id, receipt.status.state().into(), receipt.due);
        shown.fence = Some(receipt.status.fence().0);
        match &receipt.status {
            Status::Held(Held { on_unknown, .. }) if receipt.due.is_over() => {
                let rule = match on_unknown {
                    OnUnknown::Hold => "hold",
                    OnUnknown::Retry => "retry",
                };
                shown.on_unknown = Some(rule.into());
            }
            Status::Unknown(unknown) => shown.doubt = Some(doubt_name(unknown.doubt).into()),
            Status::Done(done) => shown.verdict = Some(Verdict::of(&done.outcome)),
            Status::Held(_) | Status::Gone(_) => {}
        }
        shown
    }

    /// As a scan found it. A damaged one is shown too: it must not hide.
    pub fn found(id: &Id, found: &Found) -> Self {
        match codec::decode(found) {
            Ok(receipt) => Self::without_body(id, &receipt),
            Err(error) => {
                let unreadable = Some(error.to_string());
                Self { unreadable, ..Self::bare(id, found.state.into(), found.due) }
            }
        }
    }

    fn bare(id: &Id, state: State, due: Due) -> Self {
        let millis = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self {
            scope: id.scope().into(),
            operation: id.operation().into(),
            key: id.key().into(),
            state,
            fence: None,
            due_in_ms: match due {
                Due::Never => None,
                Due::In(remaining) => Some(millis(remaining)),
                Due::Over(ago) => Some(-millis(ago)),
            },
            on_unknown: None,
            doubt: None,
            verdict: None,
            outcome: None,
            unreadable: None,
        }
    }
}

fn doubt_name(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::LeaseEnded => "lease_ended",
        Doubt::Reported => "reported",
        Doubt::Panicked => "panicked",
        Doubt::Dropped => "dropped",
    }
}

impl State {
    pub fn name(self) -> &'static str {
        onceward::State::from(self).name()
    }
}

impl From<State> for onceward::State {
    fn from(state: State) -> Self {
        match state {
            State::Held => Self::Held,
            State::Done => Self::Done,
            State::Unknown => Self::Unknown,
            State::Gone => Self::Gone,
        }
    }
}

impl From<onceward::State> for State {
    fn from(state: onceward::State) -> Self {
        match state {
            onceward::State::Held => Self::Held,
            onceward::State::Done => Self::Done,
            onceward::State::Unknown => Self::Unknown,
            onceward::State::Gone => Self::Gone,
        }
    }
}
