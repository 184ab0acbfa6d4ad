//! Sagas in the receipts API: for operators, with the same token, audit and document as receipts.

pub mod shape;

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use onceward::{ErrorKind, Id};
use onceward_flows::{Direction, SagaChange, SagaFilter, SagaState, StoredSagas};
use onceward_http::admin::Admin;
use onceward_http::admin::extend::{ApiResult, AuditEntry, Json, Problem, QueryParams, cursor, cursor_text};
use onceward_http::admin::shape::ProblemShown;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use shape::{
    RetrySagaAsked, SagaAsked, SagaShown, SagasAsked, SagasShown, SettleSagaAsked, UndoSagaAsked, settle_step,
};

/// Receipts that are looked at for one answer, by default and at most.
const LIST_RECEIPTS: usize = 100;
const LIST_RECEIPTS_MAX: usize = 1_000;

struct Sagas {
    admin: Admin,
    stored: StoredSagas,
}

type SagasState = State<Arc<Sagas>>;

/// The routes of sagas, and what describes them.
pub fn routes(admin: &Admin) -> OpenApiRouter {
    let sagas = Sagas { admin: admin.clone(), stored: StoredSagas::new(admin.onceward()) };
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(retry))
        .routes(routes!(undo))
        .routes(routes!(settle))
        .with_state(Arc::new(sagas))
}

/// Lists sagas, without their inputs, results and steps. A page may be short or empty and still have a next one.
#[utoipa::path(get, path = "/v1/sagas", operation_id = "sagas", params(SagasAsked), responses(
    (status = 200, body = SagasShown),
))]
async fn list(
    State(state): SagasState,
    QueryParams(asked): QueryParams<SagasAsked>,
) -> ApiResult<Json<SagasShown>> {
    let limit = asked.limit.unwrap_or(LIST_RECEIPTS).clamp(1, LIST_RECEIPTS_MAX);
    let after = asked.cursor.as_deref().map(cursor).transpose()?;
    let filter = SagaFilter::default().with_name(asked.name).with_scope(asked.scope);
    let page = state.stored.list(&filter, after, limit).await?;
    let wanted = page.sagas.iter().filter(|view| {
        !asked.needs_person.unwrap_or(false) || matches!(view.state, SagaState::NeedsPerson(_))
    });
    let sagas = wanted.map(SagaShown::in_list).collect();
    Ok(Json(SagasShown { sagas, next: page.next.as_ref().map(cursor_text) }))
}

/// Shows one saga with its input, and every step with its result, tries and times.
#[utoipa::path(get, path = "/v1/saga", operation_id = "saga", params(SagaAsked), responses(
    (status = 200, body = SagaShown),
    (status = 404, description = "no-saga", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn show(
    State(state): SagasState,
    QueryParams(asked): QueryParams<SagaAsked>,
) -> ApiResult<Json<SagaShown>> {
    let id = shape::id(asked.scope.as_deref(), &asked.name, &asked.key)?;
    let view = state.stored.show(&id).await?.ok_or_else(no_saga)?;
    Ok(Json(SagaShown::new(&view)))
}

/// Has dead steps tried again from the first try on, or the saga itself if it is dead. `step` names the only one.
#[utoipa::path(post, path = "/v1/retry-saga", operation_id = "retry_saga", request_body = RetrySagaAsked, responses(
    (status = 204, description = "They wait for their next tries."),
    (status = 404, description = "no-saga", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "saga-ended; nothing-to-decide: nothing of it is dead", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn retry(State(state): SagasState, Json(asked): Json<RetrySagaAsked>) -> ApiResult<StatusCode> {
    let id = shape::id(asked.scope.as_deref(), &asked.name, &asked.key)?;
    let step = match (&asked.step, asked.undo) {
        (None, true) => return Err(Problem::Invalid("`undo` needs the `step` that it is of".into())),
        (step, undo) => step.as_deref().map(|step| (step, direction(undo))),
    };
    let entry = entry("retry-saga", asked.by.as_deref(), asked.reason.as_deref(), &id, step)?;
    let change = async { answer(&state, &id, state.stored.retry(&id, step).await).await };
    state.admin.audited(entry, change).await
}

/// Has a saga undone: nothing more of it begins, and what has happened is undone. Too late for one whose last step
/// succeeds; show it to see.
#[utoipa::path(post, path = "/v1/undo-saga", operation_id = "undo_saga", request_body = UndoSagaAsked, responses(
    (status = 204, description = "It is going to be undone."),
    (status = 404, description = "no-saga", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "saga-ended", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn undo(State(state): SagasState, Json(asked): Json<UndoSagaAsked>) -> ApiResult<StatusCode> {
    let id = shape::id(asked.scope.as_deref(), &asked.name, &asked.key)?;
    let entry = entry("undo-saga", asked.by.as_deref(), Some(&asked.reason), &id, None)?;
    let change = async { answer(&state, &id, state.stored.undo(&id, &asked.reason).await).await };
    state.admin.audited(entry, change).await
}

/// Says what became of a step whose outcome is unknown, or that is dead. Give one of `done`, `done_base64`, `refused`,
/// `failed` and `not_done`.
#[utoipa::path(post, path = "/v1/settle-saga", operation_id = "settle_saga", request_body = SettleSagaAsked, responses(
    (status = 204, description = "Settled: the saga goes on with it."),
    (status = 404, description = "no-saga", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "saga-ended; nothing-to-decide: no such step, or its outcome is known; may-still-happen", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn settle(State(state): SagasState, Json(asked): Json<SettleSagaAsked>) -> ApiResult<StatusCode> {
    let id = shape::id(asked.scope.as_deref(), &asked.name, &asked.key)?;
    let (step, direction) = (asked.step.as_str(), direction(asked.undo));
    let (settlement, how) = settle_step(&asked)?;
    let entry =
        entry("settle-saga", asked.by.as_deref(), asked.reason.as_deref(), &id, Some((step, direction)))?;
    let change = async {
        match state.stored.settle(&id, step, direction, settlement).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(Problem::MayStillHappen(error.to_string()))
            }
            settled => answer(&state, &id, settled).await,
        }
    };
    state.admin.audited(entry.how(Some(how)), change).await
}

fn direction(undo: bool) -> Direction {
    if undo { Direction::Undo } else { Direction::Action }
}

/// The entry of the audit names the receipt of the step, if a step is named.
fn entry(
    action: &'static str,
    by: Option<&str>,
    reason: Option<&str>,
    saga: &Id,
    step: Option<(&str, Direction)>,
) -> ApiResult<AuditEntry> {
    let entry = AuditEntry::new(action, by, reason)?;
    Ok(match step {
        None => entry.of(saga),
        Some((name, Direction::Action)) => entry.of(&saga.step(name)?),
        Some((name, Direction::Undo)) => entry.of(&saga.step(&format!("{name}/undo"))?),
    })
}

async fn answer(state: &Sagas, id: &Id, change: onceward::Result<SagaChange>) -> ApiResult<StatusCode> {
    match change? {
        SagaChange::Applied => Ok(StatusCode::NO_CONTENT),
        SagaChange::Ended => Err(Problem::Other {
            name: "saga-ended",
            status: StatusCode::CONFLICT,
            title: "The saga has ended",
            detail: "Nothing was changed.".into(),
        }),
        _ if state.stored.show(id).await?.is_none() => Err(no_saga()),
        _ => Err(Problem::Other {
            name: "nothing-to-decide",
            status: StatusCode::CONFLICT,
            title: "There is nothing to decide",
            detail:
                "There is no such step, or it is in no state that needs this decision. Nothing was changed."
                    .into(),
        }),
    }
}

fn no_saga() -> Problem {
    Problem::Other {
        name: "no-saga",
        status: StatusCode::NOT_FOUND,
        title: "There is no such saga",
        detail: "None was started under this scope, name and key, or its retention is over.".into(),
    }
}
