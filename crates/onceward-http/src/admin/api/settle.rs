//! What operators decide about one receipt: settle, retry, discard, cancel. Each change is recorded with who asked for it
//! and why.

use std::sync::atomic::Ordering;

use axum::extract::State;
use http::StatusCode;
use onceward::receipt::{Closed, Done, End, Prior, Status, Waiting};
use onceward::{Changed, ErrorKind, Fence, Id, Receipt, Settlement};

use super::shape::{CloseAsked, IntentAsked, ProblemShown, ReceiptShown, SettleAsked};
use super::{AdminState, ApiResult, check_scope};
use crate::admin::audit::AuditEntry;
use crate::admin::json::Json;
use crate::admin::problem::Problem;

/// What the operations of sagas begin with.
const SAGA: &str = "saga:";

/// Settles an unknown outcome. `fence` names the run that was checked: if another run has taken its place, nothing is
/// changed.
#[utoipa::path(post, path = "/v1/settle", request_body = SettleAsked, responses(
    (status = 204, description = "Settled."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-unknown, still-running, may-still-happen", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn settle(
    State(state): AdminState,
    Json(asked): Json<SettleAsked>,
) -> ApiResult<StatusCode> {
    let id = asked.id()?;
    check_scope(&id)?;
    // What a step ended with has a form of its own, which a body that is given here has not.
    if id.is_step() && id.operation().starts_with(SAGA) {
        let detail = "a step of a saga is settled with `onceward sagas settle`";
        return Err(Problem::Invalid(detail.into()));
    }
    let (fence, policy) = (Fence(asked.fence), asked.policy.read()?);
    let (settlement, how, counter) = match (&asked.done, asked.not_done, asked.force) {
        (Some(outcome), false, false) => (Settlement::Done(outcome.read()?), "done", &state.settlements.done),
        (None, true, false) => (Settlement::NotDone, "not done", &state.settlements.not_done),
        (None, true, true) => (Settlement::ForceNotDone, "not done, by force", &state.settlements.not_done),
        _ => {
            let detail = "give either `done` with the outcome, or `not_done: true`, the latter perhaps with `force: true`";
            return Err(Problem::Invalid(detail.into()));
        }
    };
    let mut entry = AuditEntry::new("settle", asked.by.as_deref(), asked.reason.as_deref())?.of(&id);
    entry = AuditEntry { fence: Some(fence.0), ..entry }.how(Some(how));
    state
        .audited(entry, async {
            let settled = match state.onceward.settle(&id, fence, &settlement, &policy).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let receipt = state.onceward.receipt(&id).await?;
                    let running = receipt.as_ref().is_some_and(is_running);
                    let why = error.to_string();
                    return Err(if running { Problem::StillRunning } else { Problem::MayStillHappen(why) });
                }
                settled => settled?,
            };
            match settled {
                Changed::Applied => {
                    counter.fetch_add(1, Ordering::Relaxed);
                    Ok(StatusCode::NO_CONTENT)
                }
                Changed::NotOwner(None) => Err(Problem::NoReceipt),
                // The same settlement again: the reply to the first one may have been lost.
                Changed::NotOwner(Some(receipt)) if is_settled_so(&receipt.status, fence, &settlement) => {
                    Ok(StatusCode::NO_CONTENT)
                }
                Changed::NotOwner(Some(receipt)) => {
                    Err(Problem::NotUnknown(Box::new(ReceiptShown::without_body(&id, &receipt))))
                }
            }
        })
        .await
}

fn is_running(receipt: &Receipt) -> bool {
    matches!(receipt.status, Status::Held(_)) && !receipt.due.is_over()
}

fn is_settled_so(status: &Status, fence: Fence, settlement: &Settlement) -> bool {
    match (status, settlement) {
        (Status::Done(Done { claim, end: End::Outcome(there), .. }), Settlement::Done(outcome)) => {
            claim.fence == fence && there == outcome
        }
        (
            Status::Waiting(Waiting { claim, prior: Prior::Settled, .. }),
            Settlement::NotDone | Settlement::ForceNotDone,
        ) => claim.fence == fence,
        _ => false,
    }
}

/// Retries an intent whose tries were used up, starting again from the first try.
#[utoipa::path(post, path = "/v1/retry-dead", request_body = IntentAsked, responses(
    (status = 204, description = "It waits for its next try."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state; outcome-unknown: settle it as not done instead", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn retry_dead(
    State(state): AdminState,
    Json(asked): Json<IntentAsked>,
) -> ApiResult<StatusCode> {
    let id = asked.id()?;
    check_scope(&id)?;
    let entry = AuditEntry::new("retry-dead", asked.by.as_deref(), asked.reason.as_deref())?.of(&id);
    state
        .audited(entry, async {
            match state.onceward.retry_dead(&id).await {
                Err(error) if error.kind() == ErrorKind::Conflict => Err(Problem::OutcomeUnknown),
                retried => answer(&id, retried, None),
            }
        })
        .await
}

/// Sends a dead webhook again under a new key. It may take effect twice: the service knows nothing of the new key.
#[utoipa::path(post, path = "/v1/redrive-dead", request_body = IntentAsked, responses(
    (status = 204, description = "It is stored under a new key, and the dead one is closed."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state: not a dead webhook", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn redrive_dead(
    State(state): AdminState,
    Json(asked): Json<IntentAsked>,
) -> ApiResult<StatusCode> {
    let id = asked.id()?;
    check_scope(&id)?;
    let entry = AuditEntry::new("redrive-dead", asked.by.as_deref(), asked.reason.as_deref())?.of(&id);
    state
        .audited(entry, async {
            match crate::webhook::redrive_dead(&state.onceward, &id).await {
                Ok(_) => Ok(StatusCode::NO_CONTENT),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    answer(&id, state.onceward.receipt(&id).await.map(Changed::NotOwner), None)
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
}

/// Discards an intent whose tries were used up: later requests for it are refused as closed.
#[utoipa::path(post, path = "/v1/discard-dead", request_body = CloseAsked, responses(
    (status = 204, description = "It is closed."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn discard_dead(
    State(state): AdminState,
    Json(asked): Json<CloseAsked>,
) -> ApiResult<StatusCode> {
    let (id, policy) = (asked.id()?, asked.policy.read()?);
    check_scope(&id)?;
    let entry = AuditEntry::new("discard-dead", asked.by.as_deref(), asked.reason.as_deref())?.of(&id);
    let change =
        async { answer(&id, state.onceward.discard_dead(&id, &policy).await, Some(Closed::Discarded)) };
    state.audited(entry, change).await
}

/// Cancels an intent that waits for its next try: later requests for it are refused as closed.
#[utoipa::path(post, path = "/v1/cancel", request_body = CloseAsked, responses(
    (status = 204, description = "It is closed."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state: it does not wait", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn cancel(State(state): AdminState, Json(asked): Json<CloseAsked>) -> ApiResult<StatusCode> {
    let (id, policy) = (asked.id()?, asked.policy.read()?);
    check_scope(&id)?;
    let entry = AuditEntry::new("cancel", asked.by.as_deref(), asked.reason.as_deref())?.of(&id);
    let change = async { answer(&id, state.onceward.cancel(&id, &policy).await, Some(Closed::Cancelled)) };
    state.audited(entry, change).await
}

/// The answer to a change. `closes` is how the intent is closed afterwards, if it is.
pub(super) fn answer(
    id: &Id,
    changed: onceward::Result<Changed>,
    closes: Option<Closed>,
) -> ApiResult<StatusCode> {
    let receipt = match changed? {
        Changed::Applied => return Ok(StatusCode::NO_CONTENT),
        Changed::NotOwner(receipt) => receipt.ok_or(Problem::NoReceipt)?,
    };
    match &receipt.status {
        // Closed like this already: the answer to the first request was lost.
        Status::Done(Done { end: End::Closed(how), .. }) if closes == Some(*how) => {
            Ok(StatusCode::NO_CONTENT)
        }
        _ => Err(Problem::OtherState(Box::new(ReceiptShown::without_body(id, &receipt)))),
    }
}
