//! The admin routers in a service of a library user, over real sockets.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use onceward::Onceward;
use onceward_http::admin::{Admin, AdminAuth, Readiness, well_known_router};
use onceward_http::publication::Document;
use onceward_http::{Metrics, OncewardLayer, Route, Secrets};
use onceward_stores::MemoryStore;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TOKEN: &str = "0123456789abcdef-secret";

fn engine() -> Onceward {
    Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile().build().unwrap()
}

/// Serves on a port of its own, and tells handlers where a connection comes from.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{}", self.head);
        self.json()["type"].as_str().unwrap().strip_prefix("urn:onceward:problem:").unwrap().to_owned()
    }
}

async fn send(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !fields.iter().any(|(name, _)| *name == "Host") {
        write!(request, "Host: {address}\r\n").unwrap();
    }
    for (name, value) in fields {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

async fn get_at(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, &[], "").await
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A service with a guarded route of its own, and everything there is beside it.
async fn shop(auth: AdminAuth) -> (SocketAddr, Arc<Readiness>) {
    let (onceward, metrics, readiness) = (engine(), Arc::new(Metrics::new()), Arc::new(Readiness::new()));
    let route = Arc::new(Route::default());
    let secrets = Secrets::new([7; 32]);
    let layer = OncewardLayer::new(onceward.clone(), secrets, route.clone()).with_metrics(metrics.clone());
    let admin = Admin::new(onceward)
        .with_layer_metrics(metrics)
        .with_readiness(readiness.clone())
        .with_metrics(|out| out.push_str("# TYPE shop_orders gauge\nshop_orders 3\n"));
    let app = Router::new()
        .route("/charges", post(async || "charged").layer(layer))
        .route("/", get(async || "shop"))
        .merge(admin.health_router())
        .merge(admin.metrics_router())
        .merge(well_known_router(Document::new(&[("/charges".into(), route)])))
        .nest("/admin", admin.receipts_router(auth));
    (serve(app).await, readiness)
}

#[tokio::test]
async fn with_a_token_the_receipts_need_the_token() {
    let (address, readiness) = shop(AdminAuth::token(TOKEN).unwrap()).await;
    let bearer = format!("Bearer {TOKEN}");
    let token = ("Authorization", bearer.as_str());
    let key = ("Idempotency-Key", "\"one\"");
    assert_eq!(send(address, "POST", "/charges", &[key], "{}").await.body, "charged");

    let list = async |fields: &[(&str, &str)]| send(address, "GET", "/admin/v1/receipts", fields, "").await;
    let stranger = list(&[]).await;
    assert_eq!((stranger.status, stranger.problem()), (401, "unauthorized".into()));
    assert!(stranger.head.contains("www-authenticate: bearer"), "{}", stranger.head);
    assert_eq!(list(&[("Authorization", "Bearer 0123456789abcdef-guessed")]).await.status, 401);
    // With a token any name will do: there may be a load balancer in front.
    let listed = list(&[token, ("Host", "shop.example"), ("X-Forwarded-For", "10.0.0.1")]).await;
    assert_eq!((listed.status, &listed.json()["receipts"][0]["key"]), (200, &json!("one")));

    // The verbs of the API work where they are mounted.
    let claim = json!({"scope": "s", "operation": "o", "key": "k"});
    let claim = claim.to_string();
    let claimed = send(address, "POST", "/admin/v1/claim", &[JSON, token], &claim).await;
    assert_eq!(claimed.status, 201, "{}", claimed.body);
    let ticket = json!({"ticket": claimed.json()["ticket"]}).to_string();
    assert_eq!(send(address, "POST", "/admin/v1/unknown", &[JSON, token], &ticket).await.status, 204);
    let settle = json!({
        "scope": "s", "operation": "o", "key": "k", "fence": claimed.json()["fence"], "not_done": true,
    });
    let mut forced = settle.clone();
    forced["force"] = json!(true);
    let (settle, forced) = (settle.to_string(), forced.to_string());
    assert_eq!(send(address, "POST", "/admin/v1/settle", &[JSON], &settle).await.status, 401);
    // What the claim's owner has sent may still take effect, unless the claim has said otherwise.
    let too_soon = send(address, "POST", "/admin/v1/settle", &[JSON, token], &settle).await;
    assert_eq!((too_soon.status, too_soon.problem()), (409, "may-still-happen".into()));
    assert_eq!(send(address, "POST", "/admin/v1/settle", &[JSON, token], &forced).await.status, 204);

    // Monitors and clients come without a token; the metrics are of the engine, the layer and the service.
    let metrics = get_at(address, "/metrics").await.body;
    for line in [
        "onceward_settlements_total{found=\"not_done\"} 1",
        "onceward_http_requests_guarded_total 1",
        "shop_orders 3",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\nis not in\n{metrics}");
    }
    assert_eq!(get_at(address, "/healthz").await.status, 200);
    assert_eq!(get_at(address, "/readyz").await.status, 200);
    readiness.drain();
    assert_eq!(get_at(address, "/readyz").await.status, 503);
    let document = get_at(address, "/admin/openapi.json").await.json();
    assert!(document["paths"]["/v1/claim"].is_object(), "{document}");
    let policy = get_at(address, "/.well-known/idempotency").await;
    assert_eq!(policy.json()["routes"][0]["path"], "/charges");
    assert_eq!(send(address, "DELETE", "/.well-known/idempotency", &[], "").await.status, 405);
    // What is not ours is the service's.
    assert_eq!(get_at(address, "/").await.body, "shop");
    assert_eq!(get_at(address, "/nowhere").await.body, "");
}

#[tokio::test]
async fn without_a_token_the_receipts_are_for_this_machine() {
    let (address, _) = shop(AdminAuth::loopback_peers()).await;
    let list = async |fields: &[(&str, &str)]| send(address, "GET", "/admin/v1/receipts", fields, "").await;
    assert_eq!(list(&[]).await.status, 200);
    for fields in [
        [("X-Forwarded-For", "10.0.0.1")],
        [("Host", "shop.example")],
        [("Origin", "https://evil.example")],
        [("Sec-Fetch-Site", "cross-site")],
    ] {
        let refused = list(&fields).await;
        assert_eq!((refused.status, refused.problem()), (403, "foreign-page".into()), "{fields:?}");
    }
    // The rest of the service is not touched by that.
    assert_eq!(send(address, "GET", "/", &[("Host", "shop.example")], "").await.body, "shop");
    assert_eq!(send(address, "GET", "/metrics", &[("Host", "shop.example")], "").await.status, 200);
}

/// A service without connection info refuses every request.
#[tokio::test]
async fn without_a_token_a_peer_that_is_not_known_is_refused() {
    let app = Admin::new(engine()).receipts_router(AdminAuth::loopback_peers());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let refused = get_at(address, "/v1/receipts").await;
    assert_eq!((refused.status, refused.problem()), (403, "foreign-page".into()));
}

/// All of it on a listener of its own, as the binary serves it.
#[tokio::test]
async fn a_listener_of_its_own_answers_everything_with_problems() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Admin::new(engine()).router(AdminAuth::loopback_listener(address).unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(get_at(address, "/v1/receipts").await.status, 200);
    assert_eq!(get_at(address, "/nowhere").await.problem(), "no-such-path");
    assert_eq!(get_at(address, "/v1/claim").await.problem(), "no-such-method");
    for path in ["/v1/receipts", "/metrics", "/healthz", "/nowhere"] {
        let refused = send(address, "GET", path, &[("Host", "evil.example")], "").await;
        assert_eq!(refused.problem(), "foreign-page", "{path}");
    }
    assert!(AdminAuth::loopback_listener("0.0.0.0:8081".parse().unwrap()).is_err());
}
