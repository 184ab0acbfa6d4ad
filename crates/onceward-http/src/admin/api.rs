//! The receipts API: the engine's operations as JSON over HTTP, for services in any language that claim intents around
//! their own code, and for operators who settle unknown outcomes.
//!
//! Paths are verbs: an id is three free texts, and none of them belongs in a path. Each handler is annotated for the
//! `OpenAPI` document, so the two always agree.

mod erase;
mod list;
mod settle;
pub mod shape;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use onceward::{Answer, Ask, Changed, Claimed, Id};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::audit::RESERVED_SCOPE;
use super::auth::{AdminAuth, Role};
use super::json::Json;
use super::problem::Problem;
pub use list::QueryParams;
use shape::{ClaimAsked, ClaimMade, ClaimReplayed, CompleteAsked, ProblemShown, ReceiptShown, TicketAsked};

type AdminState = State<Arc<Admin>>;
/// An answer, or the problem that a request is refused with.
pub type ApiResult<T> = Result<T, Problem>;

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

/// The routes of applications, which claim intents around their own code, and those of operators, which decide about
/// receipts. Each kind may have a token of its own.
pub(super) fn router(state: &Arc<Admin>, auth: &Arc<AdminAuth>) -> (Router, utoipa::openapi::OpenApi) {
    let (applications, document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(claim))
        .routes(routes!(renew))
        .routes(routes!(complete))
        .routes(routes!(release))
        .routes(routes!(mark_unknown))
        .with_state(state.clone())
        .split_for_parts();
    let more = state.operator_routes.clone();
    let (operators, document) = OpenApiRouter::with_openapi(document)
        .routes(routes!(settle::settle))
        .routes(routes!(settle::retry_dead))
        .routes(routes!(settle::redrive_dead))
        .routes(routes!(settle::discard_dead))
        .routes(routes!(settle::cancel))
        .routes(routes!(erase::erase))
        .routes(routes!(erase::erase_matching))
        .routes(routes!(list::show))
        .routes(routes!(list::list))
        .routes(routes!(list::scopes))
        .routes(routes!(list::audit))
        .with_state(state.clone())
        .merge(more)
        .split_for_parts();
    let checked = |router: Router, role| {
        router.route_layer(middleware::from_fn_with_state((auth.clone(), role), check_token))
    };
    let router = checked(applications, Role::Application).merge(checked(operators, Role::Operator));
    (router, document)
}

async fn check_token(
    State((auth, role)): State<(Arc<AdminAuth>, Role)>,
    request: Request,
    next: Next,
) -> Response {
    match auth.check_token(role, &request) {
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
    check_scope(&id)?;
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
    (status = 409, description = "not-yours: another owner or an operator decided.", body = ProblemShown, content_type = "application/problem+json"),
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
#[utoipa::path(post, path = "/v1/unknown", operation_id = "unknown", request_body = TicketAsked, responses(
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

/// The scope of Onceward's own receipts is not for others: a caller could write entries of the audit.
fn check_scope(id: &Id) -> ApiResult<()> {
    if id.scope() == RESERVED_SCOPE {
        return Err(Problem::Invalid(format!("the scope `{RESERVED_SCOPE}` is reserved")));
    }
    Ok(())
}
