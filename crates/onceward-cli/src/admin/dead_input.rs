//! The input of a dead intent in the receipts API, for operators: what a task was to do, or the webhook that was stored.
//! Receipts are shown without their inputs, which may be large and confidential; what is dead may have to be done by hand.

use std::sync::Arc;

use axum::extract::State;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use onceward::Id;
use onceward::receipt::Status;
use onceward_http::admin::Admin;
use onceward_http::admin::extend::{ApiResult, Json, Problem, QueryParams};
use onceward_http::admin::shape::ProblemShown;
use onceward_http::webhook::StoredEvent;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Which dead intent.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeadInputAsked {
    /// Its scope.
    pub scope: String,
    /// Its operation.
    pub operation: String,
    /// Its key.
    pub key: String,
}

/// What a dead intent was to do: an event, or an input of another kind; nothing if it has none.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub struct DeadInputShown {
    /// The webhook, if it is one that was stored first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventShown>,
    /// The input, if it is text and no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The input, if it is neither text nor an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_base64: Option<String>,
}

/// A webhook that was stored first.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct EventShown {
    /// The method of its request.
    pub method: String,
    /// The path and the query of its request.
    pub target: String,
    /// The sender's id of the event, as a key.
    pub event: String,
    /// What it is about: events of one object are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The fields of its request, in their order: name and value.
    pub headers: Vec<[String; 2]>,
    /// Its body, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its body, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

type AdminState = State<Arc<Admin>>;

/// The route, and what describes it.
pub fn routes(admin: &Admin) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(show)).with_state(Arc::new(admin.clone()))
}

/// Shows what a dead intent was to do, with the payload of a webhook: what `onceward receipts dead export` prints.
#[utoipa::path(get, path = "/v1/dead-input", operation_id = "dead_input", params(DeadInputAsked), responses(
    (status = 200, body = DeadInputShown),
    (status = 404, description = "not-dead: there is no such intent, or it is not dead", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn show(
    State(admin): AdminState,
    QueryParams(asked): QueryParams<DeadInputAsked>,
) -> ApiResult<Json<DeadInputShown>> {
    let id = Id::new(&asked.scope, &asked.operation, &asked.key)?;
    let found = admin.onceward().receipt(&id).await?;
    let dead = found.as_ref().filter(|found| matches!(found.status, Status::Dead(_))).ok_or_else(not_dead)?;
    Ok(Json(match dead.status.job().map(|job| (StoredEvent::decode(&job.input), &job.input)) {
        None => DeadInputShown::default(),
        Some((Some(event), _)) => {
            DeadInputShown { event: Some(EventShown::new(&event)), ..DeadInputShown::default() }
        }
        Some((None, input)) => {
            let (input, input_base64) = text_or_base64(input);
            DeadInputShown { event: None, input, input_base64 }
        }
    }))
}

impl EventShown {
    fn new(event: &StoredEvent) -> Self {
        let (body, body_base64) = text_or_base64(&event.body);
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Self {
            method: event.method.clone(),
            target: event.target.clone(),
            event: event.key.clone(),
            object: event.object.clone(),
            headers: event.headers.iter().map(|(name, value)| [name.to_string(), text(value)]).collect(),
            body,
            body_base64,
        }
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

fn not_dead() -> Problem {
    Problem::Other {
        name: "not-dead",
        status: StatusCode::NOT_FOUND,
        title: "There is no such dead intent",
        detail: "There is no such intent, or it is not dead any more.".into(),
    }
}
