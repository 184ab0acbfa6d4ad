//! The orders service: the order, its message and the receipt of the request commit together. The relay is in the same
//! process; any number of these processes share its work.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use onceward::{Answer, Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Sweep};
use onceward_flows::postgres::FlowTables;
use onceward_flows::{Message, Messages, NatsPublisher, Outbox, Relay};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresStore, PostgresTransactions, PostgresTx};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// What is ordered, and what the message says.
#[derive(Clone, Deserialize, Serialize)]
pub struct Order {
    pub item: String,
    pub quantity: i32,
}

#[derive(Clone)]
struct Service {
    onceward: Onceward,
    transactions: PostgresTransactions,
    outbox: Outbox,
}

pub async fn serve(url: &str, nats: Context, listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let tables = FlowTables::open(url).await?;
    let service = Service {
        onceward: Onceward::new(Arc::new(PostgresStore::open(url, Options::default()).await?))?,
        transactions: PostgresTransactions::open(url, 16)?,
        outbox: Outbox::new(),
    };
    let table =
        "CREATE TABLE IF NOT EXISTS orders (key text PRIMARY KEY, item text NOT NULL, quantity int NOT NULL)";
    service.transactions.pool().get().await?.batch_execute(table).await?;
    let onceward = service.onceward.clone();
    // Removes the receipts of requests when their retention ends.
    tokio::spawn(async move { onceward.sweep_forever(Sweep::default(), Duration::from_secs(60)).await });
    let publisher = NatsPublisher::new(nats, crate::SHOP, crate::PARTITIONS)?;
    let relay = Relay::new(tables, &service.outbox, publisher);
    let routes = Router::new().route("/orders", post(place)).with_state(service);
    let serving = axum::serve(listener, routes).with_graceful_shutdown(crate::stopped());
    let (served, relayed) = tokio::join!(serving, relay.run_until(crate::stopped()));
    served?;
    Ok(relayed?)
}

async fn place(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Result<(StatusCode, String), (StatusCode, String)> {
    let refused = |why: &str| (StatusCode::BAD_REQUEST, why.to_owned());
    let key = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let id = Id::new("shop", "POST /orders", key).map_err(|error| refused(&error.to_string()))?;
    let body = serde_json::to_vec(&order).map_err(|error| refused(&error.to_string()))?;
    let ask = Ask::new(id, Fingerprint::of(&body), Policy::http());
    let work = async |_: Lease, tx: PostgresTx, messages: Messages| {
        let insert = "INSERT INTO orders (key, item, quantity) VALUES ($1, $2, $3)";
        tx.execute(insert, &[&key, &order.item, &order.quantity]).await?;
        // Orders of one item are handled in the order in which they were committed.
        messages.add(Message::new("orders.placed", body.clone()).with_ordering_key(order.item.clone()));
        Ok(Outcome::succeeded("placed\n"))
    };
    match service.outbox.transact(&service.onceward, &service.transactions, ask, work).await {
        Ok(Answer::Completed(_)) => Ok((StatusCode::CREATED, "placed\n".to_owned())),
        Ok(Answer::Refused(refusal)) => Err((StatusCode::CONFLICT, format!("{refusal}\n"))),
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))),
    }
}
