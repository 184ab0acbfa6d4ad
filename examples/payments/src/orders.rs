//! An order: placed, paid, shipped. It has a business key of its own, so its writes are idempotent by
//! themselves, and only the first change to `paid` sends the confirmation.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward::Lease;
use serde::Deserialize;

use crate::{App, Failure};

#[derive(Deserialize)]
pub struct NewOrder {
    pub order: String,
}

/// `POST /orders`
pub async fn place(
    State(app): State<App>,
    Extension(lease): Extension<Lease>,
    Json(new): Json<NewOrder>,
) -> Result<Response, Failure> {
    let word = app.database.place_order(&lease, &new.order).await?;
    Ok((StatusCode::CREATED, word).into_response())
}

/// `POST /orders/{order}/pay`
pub async fn pay(
    State(app): State<App>,
    Extension(lease): Extension<Lease>,
    Path(order): Path<String>,
) -> Result<Response, Failure> {
    let word = app.database.pay_order(&lease, &order).await?;
    let status = if &word[..] == b"illegal" { StatusCode::CONFLICT } else { StatusCode::OK };
    Ok((status, word).into_response())
}

/// `GET /orders/{order}`: its state, and how many confirmations were sent.
pub async fn show(State(app): State<App>, Path(order): Path<String>) -> Result<Json<(String, i64)>, Failure> {
    Ok(Json(app.database.order(&order).await?))
}
