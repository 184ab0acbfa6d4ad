//! The receipts API: the engine's operations as JSON over HTTP, for services in any language that claim intents around
//! their own code, and for operators who settle unknown outcomes.
//!
//! Paths are verbs: an id is three free texts, and none of them belongs in a path. Each handler is annotated for the
//! `OpenAPI` document, so the two always agree.

pub mod shape;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use onceward::receipt::{Closed, Done, End, Prior, Status, Waiting};
use onceward::{
    Answer, Ask, Changed, Claimed, Cursor, ErrorKind, Fence, Filter, Id, Receipt, Scan, ScanTarget,
    Settlement, TextMatch,
};
use serde::de::DeserializeOwned;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::AdminAuth;
use super::json::Json;
use super::problem::Problem;
use super::{Admin, hashed};
use shape::{
    ClaimAsked, ClaimMade, ClaimReplayed, CloseAsked, CompleteAsked, IntentAsked, ListAsked, ProblemShown,
    ReceiptAsked, ReceiptShown, ReceiptsShown, SettleAsked, TicketAsked,
};

type AdminState = State<Arc<Admin>>;
type ApiResult<T> = Result<T, Problem>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Onceward receipts",
        description = "Claims around your own code: claim an intent, do the work, complete it. Everyone who asks again gets the recorded outcome.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(ProblemShown))
)]
struct Document;

pub(super) fn router(state: Arc<Admin>, auth: Arc<AdminAuth>) -> (Router, utoipa::openapi::OpenApi) {
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(claim))
        .routes(routes!(renew))
        .routes(routes!(complete))
        .routes(routes!(release))
        .routes(routes!(mark_unknown))
        .routes(routes!(settle))
        .routes(routes!(retry_dead))
        .routes(routes!(discard_dead))
        .routes(routes!(cancel))
        .routes(routes!(erase))
        .routes(routes!(show))
        .routes(routes!(list))
        .with_state(state)
        .split_for_parts();
    (router.route_layer(middleware::from_fn_with_state(auth, check_token)), document)
}

async fn check_token(State(auth): State<Arc<AdminAuth>>, request: Request, next: Next) -> Response {
    match auth.check_token(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Claims an intent. Either it is yours, with a ticket, or it has been done, with the outcome; anything
/// else is a problem. A claim that is given up before it is answered is given back, unless `attempt`
/// named it.
#[utoipa::path(post, path = "/v1/claim", request_body = ClaimAsked, responses(
    (status = 201, description = "Yours. Do the work, then complete it.", body = ClaimMade),
    (status = 200, description = "Done already. This is the outcome.", body = ClaimReplayed),
    (status = "4XX", description = "key-reused, in-progress, outcome-unknown, dead, closed, response-not-stored, key-expired, …", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn claim(State(state): AdminState, Json(asked): Json<ClaimAsked>) -> ApiResult<Response> {
    let id = Id::new(&asked.scope, &asked.operation, &asked.key)?;
    let policy = Arc::new(asked.policy.waiting(asked.wait_ms)?);
    let mut ask = Ask::new(id, shape::fingerprint(asked.fingerprint.as_deref()), policy.clone());
    if let Some(attempt) = &asked.attempt {
        ask = ask.with_attempt(shape::attempt(attempt)?);
    }
    match state.onceward.claim(ask).await? {
        Claimed::Granted(ticket) => {
            let made = ClaimMade::new(&ticket, &asked.policy, policy.lease());
            Ok((StatusCode::CREATED, Json(made)).into_response())
        }
        Claimed::Answered(Answer::Completed(ran)) => Ok(Json(ClaimReplayed::new(&ran)).into_response()),
        Claimed::Answered(Answer::Refused(refusal)) => Err(refusal.into()),
    }
}

/// Renews the lease of a claim, counted from now. Do so at a third of it while the work runs.
#[utoipa::path(post, path = "/v1/renew", request_body = TicketAsked, responses(
    (status = 204, description = "The lease begins again."),
    (status = 409, description = "not-yours: stop the work.", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn renew(State(state): AdminState, Json(asked): Json<TicketAsked>) -> ApiResult<StatusCode> {
    let ticket = asked.ticket.read()?;
    changed(ticket.id(), state.onceward.renew(&ticket).await?)
}

/// Records the outcome of a claim. Sending the same again changes nothing.
#[utoipa::path(post, path = "/v1/complete", request_body = CompleteAsked, responses(
    (status = 204, description = "Recorded: everyone who asks again gets it."),
    (status = 409, description = "not-yours: somebody else decided what became of it.", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn complete(State(state): AdminState, Json(asked): Json<CompleteAsked>) -> ApiResult<StatusCode> {
    let ticket = asked.ticket.read()?;
    let outcome = asked.outcome.read()?;
    changed(ticket.id(), state.onceward.complete(&ticket, outcome).await?)
}

/// Gives a claim back: nothing happened, the next claim runs.
#[utoipa::path(post, path = "/v1/release", request_body = TicketAsked, responses(
    (status = 204, description = "The key is free."),
    (status = 409, description = "not-yours", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn release(State(state): AdminState, Json(asked): Json<TicketAsked>) -> ApiResult<StatusCode> {
    let ticket = asked.ticket.read()?;
    changed(ticket.id(), state.onceward.release(&ticket).await?)
}

/// Reports that the effect of a claim may or may not have happened. By policy it is then held until it is settled, or
/// free to run again.
#[utoipa::path(post, path = "/v1/doubt", operation_id = "doubt", request_body = TicketAsked, responses(
    (status = 204, description = "Noted."),
    (status = 409, description = "not-yours", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn mark_unknown(State(state): AdminState, Json(asked): Json<TicketAsked>) -> ApiResult<StatusCode> {
    let ticket = asked.ticket.read()?;
    changed(ticket.id(), state.onceward.mark_unknown(&ticket).await?)
}

fn changed(id: &Id, changed: Changed) -> ApiResult<StatusCode> {
    match changed {
        Changed::Applied => Ok(StatusCode::NO_CONTENT),
        Changed::NotOwner(receipt) => {
            Err(Problem::NotYours(receipt.map(|receipt| Box::new(ReceiptShown::without_body(id, &receipt)))))
        }
    }
}

/// Settles an unknown outcome. `fence` names the run that was checked: if another run has taken its place, nothing is
/// changed.
#[utoipa::path(post, path = "/v1/settle", request_body = SettleAsked, responses(
    (status = 204, description = "Settled."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-in-doubt, still-running, may-still-happen", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn settle(State(state): AdminState, Json(asked): Json<SettleAsked>) -> ApiResult<StatusCode> {
    let id = asked.id()?;
    let (fence, policy) = (Fence(asked.fence), asked.policy.read()?);
    let (settlement, counter) = match (&asked.done, asked.not_done, asked.force) {
        (Some(outcome), false, false) => (Settlement::Done(outcome.read()?), &state.settlements.done),
        (None, true, false) => (Settlement::NotDone, &state.settlements.not_done),
        (None, true, true) => (Settlement::ForceNotDone, &state.settlements.not_done),
        _ => {
            let detail = "give either `done` with the outcome, or `not_done: true`, the latter perhaps with `force: true`";
            return Err(Problem::Invalid(detail.into()));
        }
    };
    let settled = match state.onceward.settle(&id, fence, &settlement, &policy).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let receipt = state.onceward.receipt(&id).await?;
            let running =
                |receipt: &Receipt| matches!(receipt.status, Status::Held(_)) && !receipt.due.is_over();
            let running = receipt.as_ref().is_some_and(running);
            return Err(if running {
                Problem::StillRunning
            } else {
                Problem::MayStillHappen(error.to_string())
            });
        }
        settled => settled?,
    };
    match settled {
        Changed::Applied => {
            counter.fetch_add(1, Ordering::Relaxed);
            let found = match settlement {
                Settlement::Done(_) => "done",
                Settlement::NotDone => "not done",
                Settlement::ForceNotDone => "not done, by force",
            };
            let key = hashed(id.key());
            tracing::warn!(
                scope = id.scope(),
                operation = id.operation(),
                %key,
                %fence,
                found,
                "an unknown outcome was settled by hand"
            );
            Ok(StatusCode::NO_CONTENT)
        }
        Changed::NotOwner(None) => Err(Problem::NoReceipt),
        // The same settlement again: the reply to the first one may have been lost.
        Changed::NotOwner(Some(receipt)) if is_settled_so(&receipt.status, fence, &settlement) => {
            Ok(StatusCode::NO_CONTENT)
        }
        Changed::NotOwner(Some(receipt)) => {
            Err(Problem::NotInDoubt(Box::new(ReceiptShown::without_body(&id, &receipt))))
        }
    }
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
    (status = 409, description = "other-state; in-doubt: settle it as not done instead", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn retry_dead(State(state): AdminState, Json(asked): Json<IntentAsked>) -> ApiResult<StatusCode> {
    let change = OperatorChange::new(asked.id()?, "a dead intent is tried again by hand");
    match state.onceward.retry_dead(&change.id).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Err(Problem::InDoubt),
        retried => change.answer(retried),
    }
}

/// Discards an intent whose tries were used up: later requests for it are refused as closed.
#[utoipa::path(post, path = "/v1/discard-dead", request_body = CloseAsked, responses(
    (status = 204, description = "It is closed."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn discard_dead(State(state): AdminState, Json(asked): Json<CloseAsked>) -> ApiResult<StatusCode> {
    let change =
        OperatorChange::closing(asked.id()?, Closed::Discarded, "a dead intent was discarded by hand");
    change.answer(state.onceward.discard_dead(&change.id, &asked.policy.read()?).await)
}

/// Cancels an intent that waits for its next try: later requests for it are refused as closed.
#[utoipa::path(post, path = "/v1/cancel", request_body = CloseAsked, responses(
    (status = 204, description = "It is closed."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state: it does not wait", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn cancel(State(state): AdminState, Json(asked): Json<CloseAsked>) -> ApiResult<StatusCode> {
    let change =
        OperatorChange::closing(asked.id()?, Closed::Cancelled, "a waiting intent was cancelled by hand");
    change.answer(state.onceward.cancel(&change.id, &asked.policy.read()?).await)
}

/// Removes the outcome of a done receipt, and keeps that it is done: a retry gets `response-not-stored`. Other
/// processes may still give the outcome for a minute.
#[utoipa::path(post, path = "/v1/erase", request_body = IntentAsked, responses(
    (status = 204, description = "Its outcome is gone."),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "other-state: it is not done", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn erase(State(state): AdminState, Json(asked): Json<IntentAsked>) -> ApiResult<StatusCode> {
    let change = OperatorChange::new(asked.id()?, "an outcome was erased by hand");
    change.answer(state.onceward.erase(&change.id).await)
}

/// A change that an operator asks for by the id of an intent. It is logged.
struct OperatorChange {
    id: Id,
    /// How the intent is closed afterwards, if it is.
    closes: Option<Closed>,
    /// What the log says.
    what: &'static str,
}

impl OperatorChange {
    fn new(id: Id, what: &'static str) -> Self {
        Self { id, closes: None, what }
    }

    fn closing(id: Id, closes: Closed, what: &'static str) -> Self {
        Self { id, closes: Some(closes), what }
    }

    fn answer(&self, changed: onceward::Result<Changed>) -> ApiResult<StatusCode> {
        let receipt = match changed? {
            Changed::Applied => {
                self.log();
                return Ok(StatusCode::NO_CONTENT);
            }
            Changed::NotOwner(receipt) => receipt.ok_or(Problem::NoReceipt)?,
        };
        match &receipt.status {
            // Closed like this already: the answer to the first request was lost.
            Status::Done(Done { end: End::Closed(closed), .. }) if self.closes == Some(*closed) => {
                Ok(StatusCode::NO_CONTENT)
            }
            _ => Err(Problem::OtherState(Box::new(ReceiptShown::without_body(&self.id, &receipt)))),
        }
    }

    fn log(&self) {
        let key = hashed(self.id.key());
        tracing::warn!(scope = self.id.scope(), operation = self.id.operation(), %key, "{}", self.what);
    }
}

/// Shows one receipt, with its outcome.
#[utoipa::path(get, path = "/v1/receipt", params(ReceiptAsked), responses(
    (status = 200, body = ReceiptShown),
    (status = 404, description = "no-receipt", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn show(
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

/// Lists receipts, without their outcomes. A page may be short or empty and still have a next one.
#[utoipa::path(get, path = "/v1/receipts", params(ListAsked), responses(
    (status = 200, body = ReceiptsShown),
))]
async fn list(
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
        receipts.extend(page.found.iter().map(|(id, found)| ReceiptShown::found(id, found)));
        let unreadable = page.unreadable.iter();
        receipts.extend(unreadable.map(|(id, error)| ReceiptShown::unreadable(id, state_asked, error)));
        after = page.next;
        if after.is_none() || receipts.len() >= limit || records_read >= RECORDS_READ_MAX {
            break;
        }
    }
    let next = after.map(|Cursor(bytes)| shape::to_base64(&bytes));
    Ok(Json(ReceiptsShown { receipts, next }))
}

/// The query of a request, or a problem that says what is wrong with it.
struct QueryParams<T>(T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = Query::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Self(asked)).map_err(|error| Problem::Invalid(error.body_text()))
    }
}
