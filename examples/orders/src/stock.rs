//! The stock service: reserves what is ordered. The reservation and the receipt of the message commit together.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use onceward::{Onceward, Sweep};
use onceward_flows::postgres::FlowTables;
use onceward_flows::{Consumer, ConsumerDatabase, Failure, NatsSource, Received};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresStore, PostgresTransactions, PostgresTx};
use tokio::net::TcpListener;

use crate::orders::Order;

pub async fn serve(url: &str, nats: Context, listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let transactions = PostgresTransactions::open(url, 16)?;
    let table = "CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, reserved int NOT NULL DEFAULT 0);
        INSERT INTO stock (item) VALUES ('tea'), ('coffee'), ('milk') ON CONFLICT DO NOTHING";
    transactions.pool().get().await?.batch_execute(table).await?;
    let onceward = Onceward::new(Arc::new(PostgresStore::open(url, Options::default()).await?))?;
    let sweeping = onceward.clone();
    // Removes the receipts of messages when their retention ends.
    tokio::spawn(async move { sweeping.sweep_forever(Sweep::default(), Duration::from_secs(60)).await });
    let database = ConsumerDatabase::new(onceward, transactions.clone(), FlowTables::open(url).await?);
    let source = NatsSource::new(nats, crate::SHOP, crate::SHOP, crate::PARTITIONS)?;
    let consumer = Consumer::new("stock", source, database);
    let routes = Router::new().route("/stock/{item}", get(show)).with_state(transactions);
    let serving = axum::serve(listener, routes).with_graceful_shutdown(crate::stopped());
    let (served, handled) = tokio::join!(serving, consumer.handle_until(crate::stopped(), reserve));
    served?;
    Ok(handled?)
}

async fn reserve(received: Received, tx: PostgresTx) -> Result<(), Failure> {
    let order: Order = serde_json::from_slice(received.message.payload()).map_err(Failure::permanent)?;
    let reserve = "UPDATE stock SET reserved = reserved + $2 WHERE item = $1";
    match tx.execute(reserve, &[&order.item, &order.quantity]).await? {
        0 => Err(Failure::permanent(format!("there is no item `{}`", order.item))),
        _ => Ok(()),
    }
}

async fn show(
    State(transactions): State<PostgresTransactions>,
    Path(item): Path<String>,
) -> (StatusCode, String) {
    let found = async {
        let client = transactions.pool().get().await.ok()?;
        client.query_opt("SELECT reserved FROM stock WHERE item = $1", &[&item]).await.ok()?
    };
    match found.await {
        Some(row) => (StatusCode::OK, format!("{} reserved\n", row.get::<_, i32>(0))),
        None => (StatusCode::NOT_FOUND, "no such item\n".to_owned()),
    }
}
