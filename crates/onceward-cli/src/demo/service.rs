//! `onceward demo-service`: a small payments service without any handling of retries. Its ledger has every charge that
//! it made. A delay of its answers can be set.

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

/// The arguments of `onceward demo-service`: none.
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
struct LedgerState {
    charges: Vec<Charge>,
    /// How long an answer is delayed after its charge was made.
    delay: Duration,
}

type SharedLedger = State<Arc<Mutex<LedgerState>>>;

impl Args {
    pub async fn run(self) -> ExitCode {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else { return ExitCode::from(2) };
        let Ok(address) = listener.local_addr() else { return ExitCode::from(2) };
        crate::output::announce(&format!("payments on http://{address}"));
        let app = Router::new()
            .route("/charges", post(charge))
            .route("/ledger", get(ledger))
            .route("/delay/{ms}", put(delay))
            .with_state(Arc::new(Mutex::new(LedgerState::default())));
        tokio::select! {
            _ = axum::serve(listener, app) => {}
            // The parent process holds the other end of standard input: this process ends with it.
            () = input_ends() => {}
        }
        ExitCode::SUCCESS
    }
}

async fn charge(State(ledger): SharedLedger, headers: HeaderMap, body: String) -> Response {
    #[derive(Deserialize)]
    struct ChargeRequest {
        amount: u64,
    }
    let Ok(ChargeRequest { amount }) = serde_json::from_str(&body) else {
        return (StatusCode::BAD_REQUEST, "send {\"amount\": 12}\n").into_response();
    };
    let customer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("anonymous");
    let (charge, delay) = {
        let mut ledger = ledger.lock().expect("never poisoned");
        let charge = format!("ch_{}", ledger.charges.len() + 1);
        ledger.charges.push(Charge { id: charge.clone(), amount, customer: customer.to_owned() });
        (charge, ledger.delay)
    };
    // The charge is made; only the response is delayed.
    tokio::time::sleep(delay).await;
    let location = format!("/charges/{charge}");
    let fields = [("content-type", "application/json"), ("location", location.as_str())];
    (StatusCode::CREATED, fields, answer(&charge, amount)).into_response()
}

/// What the service answers to a charge.
pub fn answer(id: &str, amount: u64) -> String {
    format!("{}\n", json!({ "charge": id, "amount": amount }))
}

async fn ledger(State(ledger): SharedLedger) -> Response {
    let ledger = ledger.lock().expect("never poisoned").charges.clone();
    let body = format!("{}\n", json!({ "charges": ledger.len(), "ledger": ledger }));
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn delay(State(ledger): SharedLedger, Path(ms): Path<u64>) -> StatusCode {
    ledger.lock().expect("never poisoned").delay = Duration::from_millis(ms);
    StatusCode::NO_CONTENT
}

/// Resolves at the end of standard input.
async fn input_ends() {
    let mut input = tokio::io::stdin();
    let mut bytes = [0; 64];
    while input.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}
