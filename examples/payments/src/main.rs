//! A payments service that is safe to retry. With retries, kills and lost answers, each `Idempotency-Key` makes one
//! charge, and every retry gets the same answer.
//!
//! ```text
//! LISTEN=127.0.0.1:3000 DATABASE_URL=sqlite:payments.db cargo run -p payments
//! curl -d '{"account":"a","amount":12}' -H 'content-type: application/json' \
//!      -H 'idempotency-key: order-81' http://127.0.0.1:3000/charges
//! ```
//!
//! | file | what it shows |
//! |---|---|
//! | `charges.rs` | a charge, its answer and its receipt in one transaction |
//! | `orders.rs` | an order with states, where only the first change has side effects |
//! | `payouts.rs` | a saga that is started in a transaction and finished by a worker, with a call to an external service |
//! | `provider.rs` | that external service |
//! | `database.rs` | the business tables, and the transactions that write them |
//! | `writes.rs` | what a transaction writes, in any of the databases |
//!
//! `DATABASE_URL` is `sqlite:FILE`, `postgres://…` or `mysql://…` (MySQL or MariaDB); as `sqlx+postgres://…` or
//! `sqlx+mysql://…`, the transactions are those of sqlx. The provider records its transfers in `PROVIDER_BOOK`
//! (`provider.txt`).

mod charges;
mod database;
mod orders;
mod payouts;
mod provider;
mod writes;

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward::{Onceward, Policy, Sweep};
use onceward_flows::Saga;
use onceward_http::{OncewardLayer, Route};

use database::Database;
use provider::Provider;

#[derive(Clone)]
struct App {
    onceward: Onceward,
    database: Database,
    payout: Saga,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:payments.db".into());
    let (url, with_sqlx) = match url.strip_prefix("sqlx+") {
        Some(url) => (url.to_owned(), true),
        None => (url, false),
    };
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let lease_ms = std::env::var("LEASE_MS").ok().map_or(Ok(10_000), |text| text.parse())?;
    let book = std::env::var("PROVIDER_BOOK").unwrap_or_else(|_| "provider.txt".into());
    let provider_ms = std::env::var("PROVIDER_MS").ok().map_or(Ok(0), |text| text.parse())?;

    // Receipts and business tables must be in one database to be written in one transaction.
    let store = onceward_stores::open(&url).await?;
    let onceward = Onceward::new(store)?;
    let provider = Provider::new(book.into(), Duration::from_millis(provider_ms));
    let lease = Duration::from_millis(lease_ms);
    let mut database = Database::open(&url).await?;
    if with_sqlx {
        database = database.with_sqlx(&url).await?;
    }
    let payout = payouts::saga(&database, provider, lease)?;
    // Before it is started in a transaction: SQLite has one writer at a time.
    payout.record(&onceward).await?;
    let app = App { onceward: onceward.clone(), database, payout };

    // Each handler below commits its effects, its answer and the receipt of the request together. So a run that died
    // is simply started again: it has committed all of them or nothing.
    let route = Route::builder()
        .with_policy(Policy::http().to_builder().with_lease(lease).build()?)
        .with_effects_in_transaction()
        .build()?;
    // In production the secret comes from the configuration and is the same in every process.
    let layer = OncewardLayer::new(onceward.clone(), *b"a secret of the payments example", route);
    let guarded = Router::new()
        .route("/charges", post(charges::charge))
        .route("/orders", post(orders::place))
        .route("/orders/{order}/pay", post(orders::pay))
        .route("/payouts", post(payouts::pay_out))
        .layer(layer);
    let open = Router::new()
        .route("/charges", get(charges::list))
        .route("/charges/count", get(charges::count))
        .route("/orders/{order}", get(orders::show))
        .route("/payouts/{key}", get(payouts::show));
    let service = guarded.merge(open).with_state(app.clone());

    let worker = payouts::worker(&app.onceward, &app.payout, lease)?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let worker = tokio::spawn(async move { worker.run_until(is_set(stopped)).await });
    tokio::spawn(async move { onceward.sweep_forever(Sweep::default(), Duration::from_secs(60)).await });
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    println!("payments: listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            told_to_stop().await;
            stop.send_replace(true);
        })
        .await?;
    // A payout that is under way is finished or suspended, which counts no try.
    worker.await?;
    Ok(())
}

/// Ready on SIGTERM and on Ctrl-C. Without signals there is no graceful stop; a kill is safe as well.
async fn told_to_stop() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminated) => drop(terminated.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}

async fn is_set(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // Without its sender nobody can stop it any more.
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Any error of a handler. The effects of these routes are in their transactions, so what failed was rolled back, and a
/// 5xx frees the key: the client can retry. (On a route without that, 500 is recorded, and 503 leaves the outcome unknown.)
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0).into_response()
    }
}
