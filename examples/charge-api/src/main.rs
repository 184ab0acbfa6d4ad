//! A charge API with idempotency keys on one database. The charge, the response and the receipt of the request are one
//! commit, so a retry never charges twice, whenever the process dies. `README.md` says how to run it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use onceward::{Onceward, Policy, Sweep};
use onceward_http::{OncewardLayer, ResponseLease, Route};
use onceward_stores::sql::sqlx::{SqlxTransactions, SqlxTx};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{FromRow, Row, Sqlite};

type Transactions = SqlxTransactions<Sqlite>;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS charges \
     (id INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL)";
const INSERT: &str = "INSERT INTO charges (account, amount) VALUES (?, ?) RETURNING id, account, amount";

/// What a client sends.
#[derive(Deserialize)]
struct NewCharge {
    account: String,
    amount: i64,
}

/// What was charged.
#[derive(Serialize)]
struct Charge {
    id: i64,
    account: String,
    amount: i64,
}

impl<'r> FromRow<'r, sqlx::sqlite::SqliteRow> for Charge {
    fn from_row(row: &'r sqlx::sqlite::SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { id: row.try_get("id")?, account: row.try_get("account")?, amount: row.try_get("amount")? })
    }
}

/// `POST /charges`: the row, the response and the receipt of the request are committed together.
async fn charge(
    State(transactions): State<Transactions>,
    lease: ResponseLease,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    if new.amount <= 0 {
        return Ok((StatusCode::BAD_REQUEST, "the amount must be above 0").into_response());
    }
    let committed = lease.transact(&transactions, async |tx: SqlxTx<Sqlite>| {
        let insert = sqlx::query_as::<_, Charge>(INSERT).bind(&new.account).bind(new.amount);
        let charge = insert.fetch_one(&mut *tx.lock().await).await?;
        Ok((StatusCode::CREATED, Json(charge)).into_response())
    });
    Ok(committed.await?.into_response())
}

/// `GET /charges`
async fn list(State(transactions): State<Transactions>) -> Result<Json<Vec<Charge>>, Failure> {
    let select = sqlx::query_as("SELECT id, account, amount FROM charges ORDER BY id");
    Ok(Json(select.fetch_all(transactions.pool()).await?))
}

/// An error of the database or the store. Nothing is stored under a 503, so the client's retry runs.
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).or_else(|| std::env::var("DATABASE_URL").ok());
    let address = address.unwrap_or_else(|| "sqlite:charges.db".into());
    let file = address.strip_prefix("sqlite:").ok_or("the database must be given as sqlite:FILE")?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());

    // One file has both the receipts and the charges: that is what lets them be one commit.
    let onceward = Onceward::new(onceward_stores::open(&address).await?)?;
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file)).await?;
    sqlx::query(TABLE).execute(&pool).await?;

    // How long a retry waits for a request whose process died: 30 seconds, unless it is given.
    let lease_ms = std::env::var("LEASE_MS").map_or(Ok(30_000), |text| text.parse())?;
    let policy = Policy::http().to_builder().with_lease(Duration::from_millis(lease_ms)).build()?;
    let route = Route::builder().with_policy(policy).with_effects_in_transaction().build()?;
    let layer = OncewardLayer::new(onceward.clone(), secret()?, route);
    let service = Router::new()
        .route("/charges", post(charge))
        .layer(layer)
        .route("/charges", get(list)) // only reads: it needs no layer
        .with_state(Transactions::new(pool));

    // Removes receipts whose retention (24 hours) has passed.
    tokio::spawn(async move { onceward.sweep_forever(Sweep::default(), Duration::from_secs(60)).await });
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    println!("charge-api: listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}

/// The secret that keys the hashes of request bodies. It must stay the same across restarts and in every process on
/// this database: under another secret, a retry is taken for another request with a used key.
fn secret() -> Result<[u8; 32], &'static str> {
    match std::env::var("ONCEWARD_SECRET") {
        Ok(text) if text.len() >= 32 => Ok(blake3::derive_key("charge-api secret", text.as_bytes())),
        _ => Err("set ONCEWARD_SECRET to at least 32 random characters, the same on every start"),
    }
}
