//! Two services and their messages, each with its idempotency key.
//!
//! ```sh
//! createdb orders; createdb stock; nats-server -js &
//! orders orders postgres://localhost/orders nats://localhost 127.0.0.1:8001 &
//! orders stock  postgres://localhost/stock  nats://localhost 127.0.0.1:8002 &
//! curl -d '{"item":"tea","quantity":2}' -H 'Content-Type: application/json' -H 'Idempotency-Key: 81' 127.0.0.1:8001/orders
//! curl 127.0.0.1:8002/stock/tea        # 2 reserved, however often the first request is sent
//! ```

mod orders;
mod stock;

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use tokio::signal::unix::{SignalKind, signal};

/// The stream, and the first word of its subjects.
const SHOP: &str = "shop";
/// Order is kept within a partition; as many processes can share the work.
const PARTITIONS: u32 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [service, database, nats, listen] = &arguments[..] else {
        return Err("usage: orders orders|stock DATABASE-URL NATS-URL LISTEN-ADDRESS".into());
    };
    let nats = jetstream::new(async_nats::connect(nats).await?);
    nats.get_or_create_stream(stream::Config {
        name: SHOP.to_owned(),
        subjects: vec![format!("{SHOP}.>")],
        // Not longer than the consumer remembers what it has handled, which is 7 days.
        max_age: Duration::from_hours(24 * 6),
        ..Default::default()
    })
    .await?;
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    match service.as_str() {
        "orders" => orders::serve(database, nats, listener).await,
        "stock" => stock::serve(database, nats, listener).await,
        other => Err(format!("no such service: {other}").into()),
    }
}

/// Ready when the process is asked to stop.
async fn stopped() {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be caught");
    let _ = terminate.recv().await;
}
