//! Orders: placed, paid, shipped. An order has a business key of its own, so its writes are idempotent by
//! themselves, and only the first change to `paid` sends the confirmation.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward_http::ResponseLease;
use serde::Deserialize;

use crate::{App, Failure};

#[derive(Deserialize)]
pub struct NewOrder {
    pub order: String,
}

/// `POST /orders`
pub async fn place(
    State(app): State<App>,
    Extension(lease): Extension<ResponseLease>,
    Json(new): Json<NewOrder>,
) -> Result<Response, Failure> {
    Ok(app.database.place_order(&lease, &new.order).await?.into_response())
}

/// `POST /orders/{order}/pay`
pub async fn pay(
    State(app): State<App>,
    Extension(lease): Extension<ResponseLease>,
    Path(order): Path<String>,
) -> Result<Response, Failure> {
    Ok(app.database.pay_order(&lease, &order).await?.into_response())
}

/// `GET /orders/{order}`: its state, and how many confirmations were sent.
pub async fn show(State(app): State<App>, Path(order): Path<String>) -> Result<Json<(String, i64)>, Failure> {
    Ok(Json(app.database.order(&order).await?))
}
