//! Shows receipts, one or many, the scopes of callers, and the audit.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use http::request::Parts;
use onceward::{Age, Cursor, Filter, Scan, ScanTarget, TextMatch};
use serde::de::DeserializeOwned;

use super::shape::{
    self, AuditAsked, AuditShown, ListAsked, ProblemShown, ReceiptAsked, ReceiptShown, ReceiptsShown,
    ScopesAsked, ScopesShown,
};
use super::{AdminState, ApiResult};
use crate::admin::audit::RESERVED_SCOPE;
use crate::admin::json::Json;
use crate::admin::problem::Problem;

/// Shows one receipt, with its outcome.
#[utoipa::path(get, path = "/v1/receipt", params(ReceiptAsked), responses(
    (status = 200, body = ReceiptShown),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn show(
    State(state): AdminState,
    QueryParams(asked): QueryParams<ReceiptAsked>,
) -> ApiResult<Json<ReceiptShown>> {
    let id = asked.id()?;
    let receipt = state.onceward.receipt(&id).await?.ok_or(Problem::NoReceipt)?;
    Ok(Json(ReceiptShown::new(&id, &receipt)))
}

/// Receipts in one answer, by default and at most.
const LIST_RECEIPTS: usize = 100;
const LIST_RECEIPTS_MAX: usize = 1_000;
/// Records read for one answer, so that a search for a rare state in a large store ends.
const RECORDS_READ_MAX: usize = 50_000;

/// Lists receipts, without their outcomes. Onceward's own (scope `onceward`) are left out unless they are asked for. A page may be short or empty and still have a next one.
#[utoipa::path(get, path = "/v1/receipts", params(ListAsked), responses(
    (status = 200, body = ReceiptsShown),
))]
pub(super) async fn list(
    State(state): AdminState,
    QueryParams(asked): QueryParams<ListAsked>,
) -> ApiResult<Json<ReceiptsShown>> {
    let limit = asked.limit.unwrap_or(LIST_RECEIPTS).clamp(1, LIST_RECEIPTS_MAX);
    let operation = match (asked.operation, asked.operation_prefix) {
        (Some(_), Some(_)) => {
            return Err(Problem::Invalid("give `operation` or `operation_prefix`, not both".into()));
        }
        (Some(operation), None) => Some(TextMatch::Is(operation)),
        (None, prefix) => prefix.map(TextMatch::StartsWith),
    };
    let state_asked = asked.state.map(Into::into);
    let own = asked.scope.as_deref() == Some(RESERVED_SCOPE);
    let (error, ages) = (asked.error, Ages::new(asked.older_than_ms, asked.younger_than_ms));
    let of = ScanTarget::Matching(
        Filter::default()
            .with_scope(asked.scope)
            .with_operation(operation)
            .with_key(asked.key)
            .with_state(state_asked),
    );
    let mut after = asked.cursor.as_deref().map(shape::cursor).transpose()?;
    let mut receipts = Vec::new();
    let mut records_read = 0;
    loop {
        let scan = Scan::new(of.clone(), limit.saturating_sub(receipts.len()).max(1)).with_after(after);
        records_read += scan.limit;
        let page = state.onceward.list(&scan).await?;
        let found = page
            .found
            .iter()
            .filter(|(id, found)| ages.fit(found.age) && (own || id.scope() != RESERVED_SCOPE));
        let found = found.map(|(id, found)| ReceiptShown::without_body(id, found));
        receipts.extend(found.filter(|shown| has_error(shown, error.as_deref())));
        // They must not hide, but nothing is known of their errors, and of some not even their age.
        let fits = |age: Option<Age>| age.map_or(ages.are_any(), |age| ages.fit(age));
        let unreadable = page.unreadable.iter().filter(|(_, found)| error.is_none() && fits(found.age));
        receipts.extend(unreadable.map(|(id, found)| ReceiptShown::unreadable(id, state_asked, found)));
        after = page.next;
        if after.is_none() || receipts.len() >= limit || records_read >= RECORDS_READ_MAX {
            break;
        }
    }
    let next = after.map(|Cursor(bytes)| shape::to_base64(&bytes));
    Ok(Json(ReceiptsShown { receipts, next }))
}

fn has_error(receipt: &ReceiptShown, text: Option<&str>) -> bool {
    text.is_none_or(|text| receipt.last_error.as_deref().is_some_and(|error| error.contains(text)))
}

/// How long ago a receipt must have been created.
struct Ages {
    older_than_ms: u64,
    younger_than_ms: u64,
}

impl Ages {
    fn new(older_than_ms: Option<u64>, younger_than_ms: Option<u64>) -> Self {
        Self {
            older_than_ms: older_than_ms.unwrap_or(0),
            younger_than_ms: younger_than_ms.unwrap_or(u64::MAX),
        }
    }

    fn are_any(&self) -> bool {
        (self.older_than_ms, self.younger_than_ms) == (0, u64::MAX)
    }

    fn fit(&self, age: Age) -> bool {
        let age = u64::try_from(age.created.as_millis()).unwrap_or(u64::MAX);
        self.are_any() || (age >= self.older_than_ms && age < self.younger_than_ms)
    }
}

/// The scopes of a caller, computed from what its requests carry, under each secret of this process. For searches: a
/// scope is a keyed hash, and only this process has the key.
#[utoipa::path(get, path = "/v1/scopes", params(ScopesAsked), responses(
    (status = 200, body = ScopesShown),
    (status = "4XX", description = "invalid-request", body = ProblemShown, content_type = "application/problem+json"),
))]
pub(super) async fn scopes(
    State(state): AdminState,
    QueryParams(asked): QueryParams<ScopesAsked>,
) -> ApiResult<Json<ScopesShown>> {
    let Some(scopes_of) = &state.scopes_of else {
        let detail = "this process guards no requests, so it does not know how their scopes are computed; ask a gateway, or give the scope itself";
        return Err(Problem::Invalid(detail.into()));
    };
    let scopes = scopes_of(&asked.request()?);
    if scopes.is_empty() {
        let detail = "no route takes its scope from this; see `scope` in the configuration";
        return Err(Problem::Invalid(detail.into()));
    }
    Ok(Json(ScopesShown { scopes }))
}

/// Changes that operators made, with who and why: settled, retried, discarded, cancelled, erased. In an order of the
/// store's own.
#[utoipa::path(get, path = "/v1/audit", params(AuditAsked), responses(
    (status = 200, body = AuditShown),
))]
pub(super) async fn audit(
    State(state): AdminState,
    QueryParams(asked): QueryParams<AuditAsked>,
) -> ApiResult<Json<AuditShown>> {
    let limit = asked.limit.unwrap_or(LIST_RECEIPTS).clamp(1, LIST_RECEIPTS_MAX);
    let after = asked.cursor.as_deref().map(shape::cursor).transpose()?;
    let (entries, next) = state.audit_page(after, limit).await?;
    Ok(Json(AuditShown { entries, next: next.map(|Cursor(bytes)| shape::to_base64(&bytes)) }))
}

/// The query of a request, or a problem that says what is wrong with it.
pub struct QueryParams<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = Query::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Self(asked)).map_err(|error| Problem::Invalid(error.body_text()))
    }
}
