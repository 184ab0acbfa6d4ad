//! `onceward demo-service`: a small payments service that knows nothing of retries. Its ledger counts
//! every charge it makes, and it can be told to be slow to answer.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// What `onceward demo-service` is told on the command line: nothing.
#[derive(clap::Args)]
pub struct Args {}

/// One charge in the ledger.
#[derive(Clone, Serialize, Deserialize)]
pub struct Charge {
    pub id: String,
    pub amount: u64,
    pub customer: String,
}

#[derive(Default)]
struct Books {
    ledger: Vec<Charge>,
    /// How long an answer takes after its charge was made.
    pace: Duration,
}

type Shared = State<Arc<Mutex<Books>>>;

impl Args {
    pub async fn run(self) -> ExitCode {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else { return ExitCode::from(2) };
        let Ok(address) = listener.local_addr() else { return ExitCode::from(2) };
        crate::output::announce(&format!("payments on http://{address}"));
        let app = Router::new()
            .route("/charges", post(charge))
            .route("/ledger", get(ledger))
            .route("/pace/{ms}", put(pace))
            .with_state(Arc::new(Mutex::new(Books::default())));
        tokio::select! {
            _ = axum::serve(listener, app) => {}
            // The process that started it holds the other end: this one does not outlive it.
            () = input_ends() => {}
        }
        ExitCode::SUCCESS
    }
}

async fn charge(State(books): Shared, headers: HeaderMap, body: String) -> Response {
    #[derive(Deserialize)]
    struct Asked {
        amount: u64,
    }
    let Ok(Asked { amount }) = serde_json::from_str(&body) else {
        return (StatusCode::BAD_REQUEST, "send {\"amount\": 12}\n").into_response();
    };
    let customer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("somebody");
    let (charge, pace) = {
        let mut books = books.lock().expect("never poisoned");
        let charge = format!("ch_{}", books.ledger.len() + 1);
        books.ledger.push(Charge { id: charge.clone(), amount, customer: customer.to_owned() });
        (charge, books.pace)
    };
    // The charge is made; the response may be slow.
    tokio::time::sleep(pace).await;
    let location = format!("/charges/{charge}");
    let fields = [("content-type", "application/json"), ("location", location.as_str())];
    (StatusCode::CREATED, fields, answer(&charge, amount)).into_response()
}

/// What the service answers to a charge.
pub fn answer(id: &str, amount: u64) -> String {
    format!("{}\n", json!({ "charge": id, "amount": amount }))
}

async fn ledger(State(books): Shared) -> Response {
    let ledger = books.lock().expect("never poisoned").ledger.clone();
    let body = format!("{}\n", json!({ "charges": ledger.len(), "ledger": ledger }));
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn pace(State(books): Shared, Path(ms): Path<u64>) -> StatusCode {
    books.lock().expect("never poisoned").pace = Duration::from_millis(ms);
    StatusCode::NO_CONTENT
}

async fn input_ends() {
    let mut input = tokio::io::stdin();
    let mut bytes = [0; 64];
    while input.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}
