//! axum-idempotent with a key in a header, in its session in memory. `POST /login` gives the session.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::{Ttl, moka::MokaStore};
use ruts::{CookieOptions, Session, SessionLayer};
use serde_json::{Value, json};
use tower_cookies::CookieManagerLayer;

fn effects() -> String {
    std::env::var("EFFECTS").expect("it is set")
}

/// The same work as in the other services.
async fn charge(headers: HeaderMap, body: Bytes) -> Response {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let json = |status: StatusCode, value: Value| {
        (status, [("content-type", "application/json")], value.to_string()).into_response()
    };
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return json(StatusCode::BAD_REQUEST, json!({"error": "no JSON"}));
    };
    if field("x-fail").is_some() {
        return json(StatusCode::INTERNAL_SERVER_ERROR, json!({"error": "failed before the effect"}));
    }
    let ms = field("x-slow").and_then(|ms| ms.parse().ok()).unwrap_or(15);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let id = format!("ch_{now:x}{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut file = OpenOptions::new().append(true).create(true).open(effects()).expect("it can be written");
    writeln!(file, "{id}").expect("it can be written");
    if let Some(status) = field("x-fail-after").and_then(|status| status.parse::<u16>().ok()) {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return json(status, json!({"error": "failed after the effect"}));
    }
    let mut answer = json(StatusCode::CREATED, json!({"id": id, "amount": asked["amount"]}));
    answer.headers_mut().insert("location", format!("/charges/{id}").parse().expect("a field"));
    answer
}

async fn log_in(session: Session<MokaStore>) -> &'static str {
    let ttl = Ttl::new(3600).expect("not zero");
    session.set("user", &String::from("anna"), ttl, None).await.expect("memory does not fail");
    "welcome"
}

async fn count() -> String {
    fs::read_to_string(effects()).unwrap_or_default().lines().count().to_string()
}

#[tokio::main]
async fn main() {
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(300);
    let cookie = CookieOptions::build().name("session").path("/").max_age(3600);
    let app = Router::new()
        .route("/charges", post(charge))
        .route("/refunds", post(charge))
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .route("/login", post(log_in))
        .layer(SessionLayer::new(Arc::new(MokaStore::builder().build())).with_cookie_options(cookie))
        .layer(CookieManagerLayer::new())
        .route("/charges/count", get(count));
    let port = std::env::var("PORT").expect("it is set");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("the port is free");
    axum::serve(listener, app).await.expect("it serves");
}
