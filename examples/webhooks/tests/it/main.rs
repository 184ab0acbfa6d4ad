//! Events in the senders' formats, made by hand and signed as they sign: each has one effect.

mod stored;

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::Request;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tower_service::Service;
use webhooks::{Ledger, SenderSecrets, app};

const STRIPE: &str = "whsec_example_of_a_long_secret";
const GITHUB: &str = "It's a Secret to Everybody";
const INVOICE: &str = include_str!("../payloads/stripe_invoice_paid.json");
const PUSH: &str = include_str!("../payloads/github_push.json");

fn hex(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn stripe(body: &str) -> Request<Body> {
    stripe_to("/stripe", body)
}

fn stripe_to(path: &str, body: &str) -> Request<Body> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
    let signature = hex(STRIPE, &[now.as_bytes(), b".", body.as_bytes()]);
    Request::post(path)
        .header("content-type", "application/json")
        .header("stripe-signature", format!("t={now},v1={signature}"))
        .body(Body::from(body.to_owned()))
        .unwrap()
}

fn github(delivery: &str, body: &str) -> Request<Body> {
    Request::post("/github")
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .header("x-github-delivery", delivery)
        .header("x-github-hook-id", "7")
        .header("x-hub-signature-256", format!("sha256={}", hex(GITHUB, &[body.as_bytes()])))
        .body(Body::from(body.to_owned()))
        .unwrap()
}

#[tokio::test]
async fn every_event_has_one_effect() {
    let ledger = Ledger::default();
    let senders = SenderSecrets { stripe: STRIPE.into(), github: GITHUB.into() };
    let onceward = onceward_stores::in_memory();
    let mut app = app(&onceward, [1; 32], &senders, &ledger).unwrap();
    let mut send = async |request: Request<Body>| app.call(request).await.unwrap().status().as_u16();
    // Twice, and once more after Stripe has counted its deliveries down.
    assert_eq!(send(stripe(INVOICE)).await, 200);
    assert_eq!(send(stripe(INVOICE)).await, 200);
    assert_eq!(
        send(stripe(&INVOICE.replace("\"pending_webhooks\": 1", "\"pending_webhooks\": 0"))).await,
        200
    );
    // Delivered again by its sender, and captured and sent under another id.
    assert_eq!(send(github("72d3162e", PUSH)).await, 202);
    assert_eq!(send(github("72d3162e", PUSH)).await, 202);
    assert_eq!(send(github("00000000", PUSH)).await, 202);
    assert_eq!(
        *ledger.lock().unwrap(),
        ["cus_Example0001 paid 1200", "build example/shop at 59b20b8d5c6ff8d09518454d4dd8b7b30f095ab5"]
    );
    // A branch is deleted: nothing is built.
    let deleted = PUSH.replace("\"deleted\":false", "\"deleted\":true");
    assert_eq!(send(github("72d3162d", &deleted)).await, 204);
    // Changed on its way.
    let (mut parts, _) = github("72d3162f", PUSH).into_parts();
    parts.uri = "/github".parse().unwrap();
    assert_eq!(send(Request::from_parts(parts, Body::from(PUSH.replace("main", "evil")))).await, 403);
    assert_eq!(ledger.lock().unwrap().len(), 2);
}
