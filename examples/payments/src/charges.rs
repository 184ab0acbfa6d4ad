//! Charges: one row, the answer to the client and the receipt of the request, in one transaction.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward_http::ResponseLease;
use serde::{Deserialize, Serialize};

use crate::{App, Failure};

/// What a client asks for.
#[derive(Clone, Deserialize, Serialize)]
pub struct NewCharge {
    pub account: String,
    pub amount: i64,
}

/// What was charged.
#[derive(Clone, Deserialize, Serialize)]
pub struct Charge {
    pub id: i64,
    pub account: String,
    pub amount: i64,
    pub idempotency_key: String,
}

/// `POST /charges`
pub async fn charge(
    State(app): State<App>,
    Extension(lease): Extension<ResponseLease>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    if new.amount <= 0 {
        return Ok((StatusCode::BAD_REQUEST, "the amount must be above 0").into_response());
    }
    Ok(app.database.charge(&lease, &new).await?.into_response())
}

/// `GET /charges`
pub async fn list(State(app): State<App>) -> Result<Json<Vec<Charge>>, Failure> {
    Ok(Json(app.database.charges().await?))
}

/// `GET /charges/count`
pub async fn count(State(app): State<App>) -> Result<Json<usize>, Failure> {
    Ok(Json(app.database.charges().await?.len()))
}
