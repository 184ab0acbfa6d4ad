//! The row `onceward-layer` of `docs/peers/table.md`: Onceward's tower layer over the embedded store, in front of the same work
//! as in `docs/peers/services`. The port and the file of effects are in `PORT` and `EFFECTS`, as for the other services.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward::{Onceward, Policy};
use onceward_http::{OncewardLayer, Route, ScopeFrom};
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn effects() -> String {
    std::env::var("EFFECTS").unwrap_or_default()
}

/// 15 ms of work, one line in a file, and an answer with a new id. `X-Slow` takes that many milliseconds, `X-Fail` fails
/// before the effect, `X-Fail-After` after it with that status.
async fn charge(headers: HeaderMap, body: Bytes) -> Response {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let json = |status: StatusCode, value: Value| {
        (status, [("content-type", "application/json")], value.to_string()).into_response()
    };
    let failed = |status: StatusCode, why: &str| json(status, json!({ "error": why }));
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return failed(StatusCode::BAD_REQUEST, "no JSON");
    };
    if field("x-fail").is_some() {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, "failed before the effect");
    }
    let ms = field("x-slow").and_then(|ms| ms.parse().ok()).unwrap_or(15);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let id = format!("ch_{now:x}{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let written = OpenOptions::new().append(true).create(true).open(effects());
    if written.and_then(|mut file| file.write_all(format!("{id}\n").as_bytes())).is_err() {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be written");
    }
    if let Some(status) = field("x-fail-after").and_then(|status| status.parse().ok()) {
        return failed(StatusCode::from_u16(status).unwrap_or_default(), "failed after the effect");
    }
    let mut answer = json(StatusCode::CREATED, json!({ "id": id, "amount": asked["amount"] }));
    if let Ok(location) = format!("/charges/{id}").parse() {
        answer.headers_mut().insert("location", location);
    }
    answer
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        PathBuf::from(std::env::args().nth(1).ok_or("usage: PORT=… EFFECTS=FILE judged_layer FOLDER")?);
    let port = std::env::var("PORT")?;
    fs::create_dir_all(&folder)?;
    let store = onceward_stores::open(&format!("embedded:{}", folder.join("receipts").display())).await?;
    // The defaults, but for the lease (kills are judged in seconds) and the field that stands for the tenant.
    let policy = Policy::http().to_builder().with_lease(Duration::from_secs(5)).build()?;
    let route = Route::builder()
        .with_policy(policy)
        .with_scope(ScopeFrom::Header(HeaderName::from_static("x-user-id")))
        .build()?;
    let layer = OncewardLayer::new(Onceward::new(store)?, [7; 32], route);
    let count = || async { fs::read_to_string(effects()).unwrap_or_default().lines().count().to_string() };
    let app = Router::new()
        .route("/charges", post(charge))
        .route("/refunds", post(charge))
        .layer(layer)
        .route("/charges/count", get(count));
    axum::serve(TcpListener::bind(format!("127.0.0.1:{port}")).await?, app).await?;
    Ok(())
}
