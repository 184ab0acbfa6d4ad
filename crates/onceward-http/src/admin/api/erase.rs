//! Erasures: one receipt, or all of a scope, a key or an operation.

use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use onceward::{Cursor, Erase, ErrorKind, Filter, Outcome, Snapshot, TextMatch};

use super::settle::answer;
use super::shape::{self, EraseAsked, EraseMatchingAsked, ErasedShown, ProblemShown, RefusedShown};
use super::{AdminState, ApiResult, check_scope};
use crate::admin::audit::{AuditEntry, RESERVED_SCOPE};
use crate::admin::json::Json;
use crate::admin::problem::Problem;
use crate::snapshot;

/// Records looked at for one answer.
const RECORDS_READ: usize = 500;

/// Removes what a receipt says (body, input, note), with its steps, and keeps that it was done: a retry gets
/// `response-not-stored` with the original status. Of an unknown outcome or a dead intent the state stays. With
/// `reopen` the receipt itself is removed: **the same intent may then run again**. Other processes may still give an
/// answer for a minute.
#[utoipa::path(post, path = "/v1/erase", request_body = EraseAsked, responses(
    (status = 204, description = "It says nothing any more."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-erasable: it is running or waits; with `reopen`, it is not done", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn erase(State(state): AdminState, Json(asked): Json<EraseAsked>) -> ApiResult<StatusCode> {
    let id = asked.id()?;
    check_scope(&id)?;
    let entry = AuditEntry::new("erase", asked.by.as_deref(), asked.reason.as_deref())?
        .of(&id)
        .how(asked.reopen.then_some("reopen"));
    let change = async {
        match state.onceward.erase(&id, &how(asked.reopen)).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Err(Problem::NotErasable(error.to_string())),
            erased => answer(&id, erased, None),
        }
    };
    state.audited(entry, change).await
}

/// Erases one page of the receipts that match. Send it again with the `next` of the answer as `cursor` until there is
/// none.
#[utoipa::path(post, path = "/v1/erase-matching", request_body = EraseMatchingAsked, responses(
    (status = 200, description = "What was erased, and what was left as it is.", body = ErasedShown),
    (status = "4XX", description = "invalid-request", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn erase_matching(
    State(state): AdminState,
    Json(asked): Json<EraseMatchingAsked>,
) -> ApiResult<Json<ErasedShown>> {
    let EraseMatchingAsked { scope, operation, key, .. } = &asked;
    if scope.is_none() && operation.is_none() && key.is_none() {
        return Err(Problem::Invalid("give at least one of `scope`, `operation` and `key`".into()));
    }
    if scope.as_deref() == Some(RESERVED_SCOPE) {
        return Err(Problem::Invalid(format!("the scope `{RESERVED_SCOPE}` is reserved")));
    }
    let filter = Filter::default()
        .with_scope(scope.clone())
        .with_operation(operation.clone().map(TextMatch::Is))
        .with_key(key.clone());
    let after = asked.cursor.as_deref().map(shape::cursor).transpose()?;
    let entry = AuditEntry {
        scope: scope.clone(),
        operation: operation.clone(),
        key: key.clone(),
        ..AuditEntry::new("erase-matching", asked.by.as_deref(), asked.reason.as_deref())?
    };
    let entry = entry.how(asked.reopen.then_some("reopen"));
    let change = async {
        let how = how(asked.reopen);
        let page = state.onceward.erase_matching(&filter, &how, after, RECORDS_READ).await?;
        let refused = page.refused.iter().map(|(id, error)| RefusedShown {
            scope: id.scope().into(),
            operation: id.operation().into(),
            key: id.key().into(),
            why: error.to_string(),
        });
        Ok(Json(ErasedShown {
            erased: page.erased.len(),
            refused: refused.collect(),
            next: page.next.map(|Cursor(bytes)| shape::to_base64(&bytes)),
        }))
    };
    state.audited(entry, change).await
}

fn how(reopen: bool) -> Erase {
    Erase::new().with_reopen(reopen).with_note(status_of)
}

/// The status of a stored response is kept, so that a retry is told how the request ended.
fn status_of(outcome: &Outcome) -> Bytes {
    let status = match outcome.snapshot() {
        Snapshot::Kept(bytes) => {
            snapshot::decode(bytes).map(|response| response.status().as_str().to_owned())
        }
        Snapshot::Omitted(note) => {
            std::str::from_utf8(note).ok().filter(|note| note.parse::<u16>().is_ok()).map(str::to_owned)
        }
    };
    Bytes::from(status.unwrap_or_else(|| "erased".into()))
}
