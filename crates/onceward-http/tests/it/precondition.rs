//! Preconditions in a handler behind the layer: the receipt comes first, the precondition second.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onceward::Onceward;
use onceward_http::{
    EntityTag, Evaluation, KeyRule, OncewardLayer, PreconditionRule, Preconditions, Problem, Route,
    Validators,
};
use tower_service::Service;

/// A document and its version.
type Document = Arc<Mutex<(u64, String)>>;

fn tag(version: u64) -> EntityTag {
    EntityTag::strong(&version.to_string()).unwrap()
}

async fn read(State(document): State<Document>, preconditions: Preconditions) -> Response {
    let (version, body) = document.lock().unwrap().clone();
    let current = Validators::existing().with_tag(tag(version));
    match preconditions.evaluate(&Method::GET, &current) {
        Evaluation::Proceed => (tag(version), body).into_response(),
        _ => (StatusCode::NOT_MODIFIED, tag(version), ()).into_response(),
    }
}

async fn change(
    State(document): State<Document>,
    preconditions: Preconditions,
    body: String,
) -> Result<(EntityTag, String), Problem> {
    let mut document = document.lock().unwrap();
    let current = Validators::existing().with_tag(tag(document.0));
    if preconditions.evaluate(&Method::PATCH, &current) == Evaluation::Failed {
        return Err(preconditions.refusal(current.tag));
    }
    *document = (document.0 + 1, body);
    Ok((tag(document.0), document.1.clone()))
}

struct Answer {
    status: u16,
    etag: Option<String>,
    replayed: bool,
    body: String,
}

async fn send(app: &Router, method: Method, fields: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri("/document");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut app = app.clone();
    poll_fn(|cx| Service::<Request>::poll_ready(&mut app, cx)).await.unwrap();
    let response = app.call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, etag, replayed) =
        (response.status().as_u16(), field("etag"), field("idempotent-replayed").is_some());
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    Answer { status, etag, replayed, body: String::from_utf8(body.to_vec()).unwrap() }
}

fn app() -> Router {
    app_with(PreconditionRule::Optional, &onceward_stores::in_memory())
}

/// A service whose receipts are in this engine.
fn app_with(rule: PreconditionRule, onceward: &Onceward) -> Router {
    let document = Document::new(Mutex::new((1, "first".to_owned())));
    let route = Route::builder().with_key(KeyRule::Optional).with_precondition(rule).build().unwrap();
    Router::new()
        .route("/document", get(read).patch(change).put(change).delete(change).post(change))
        .layer(OncewardLayer::new(onceward.clone(), [7; 32], route))
        .with_state(document)
}

#[tokio::test]
async fn a_retry_gets_its_recorded_answer_although_its_tag_is_stale() {
    let app = app();
    let fields = [("idempotency-key", "edit-1"), ("if-match", "\"1\"")];
    let first = send(&app, Method::PATCH, &fields, "second").await;
    assert_eq!((first.status, first.etag.as_deref(), first.replayed), (200, Some("\"2\""), false));
    let retry = send(&app, Method::PATCH, &fields, "second").await;
    assert_eq!((retry.status, retry.etag.as_deref(), retry.replayed), (200, Some("\"2\""), true));
    assert_eq!(retry.body, "second");
}

#[tokio::test]
async fn a_failed_precondition_names_both_versions_and_is_not_recorded() {
    let app = app();
    let stale = [("idempotency-key", "edit-2"), ("if-match", "\"7\", W/\"1\"")];
    for _ in 0..2 {
        let refused = send(&app, Method::PATCH, &stale, "mine").await;
        assert_eq!((refused.status, refused.replayed), (412, false));
        let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(problem["type"], "urn:onceward:problem:precondition-failed");
        assert_eq!(problem["expected"], serde_json::json!(["\"7\"", "W/\"1\""]));
        assert_eq!(problem["current"], "\"1\"");
    }
    // The key is free: the same request is carried out once the expected version is there.
    let without_key = [("if-match", "\"1\"")];
    for _ in 1..7 {
        let any = send(&app, Method::PATCH, &[("if-match", "*")], "between").await;
        assert_eq!(any.status, 200);
    }
    assert_eq!(send(&app, Method::PATCH, &without_key, "late").await.status, 412);
    assert_eq!(send(&app, Method::PATCH, &stale, "mine").await.status, 200);
    let (status, etag) = (200, Some("\"8\""));
    let now = send(&app, Method::GET, &[], "").await;
    assert_eq!((now.status, now.etag.as_deref(), now.body.as_str()), (status, etag, "mine"));
}

#[tokio::test]
async fn a_read_of_the_same_version_is_304_and_a_malformed_tag_400() {
    let app = app();
    let same = send(&app, Method::GET, &[("if-none-match", "W/\"1\"")], "").await;
    assert_eq!((same.status, same.etag.as_deref(), same.body.as_str()), (304, Some("\"1\""), ""));
    for method in [Method::GET, Method::PATCH] {
        let malformed = send(&app, method, &[("if-match", "1")], "x").await;
        assert_eq!(malformed.status, 400);
        let problem: serde_json::Value = serde_json::from_str(&malformed.body).unwrap();
        assert_eq!(problem["type"], "urn:onceward:problem:precondition-malformed");
        assert!(problem["detail"].as_str().unwrap().contains("if-match"), "{problem}");
    }
}

/// The extractor refuses before the handler is called, so that nothing was done.
#[tokio::test]
async fn a_malformed_precondition_leaves_its_key_to_the_corrected_request() {
    let app = app();
    for _ in 0..2 {
        let malformed = [("idempotency-key", "edit-4"), ("if-match", "1")];
        let refused = send(&app, Method::PATCH, &malformed, "mine").await;
        assert_eq!((refused.status, refused.replayed), (400, false));
    }
    let corrected = [("idempotency-key", "edit-4"), ("if-match", "\"1\"")];
    let first = send(&app, Method::PATCH, &corrected, "mine").await;
    assert_eq!((first.status, first.etag.as_deref(), first.replayed), (200, Some("\"2\""), false));
    let retry = send(&app, Method::PATCH, &corrected, "mine").await;
    assert_eq!((retry.status, retry.replayed), (200, true));
}

#[tokio::test]
async fn a_required_precondition_is_asked_for_with_a_key_and_without() {
    let app = app_with(PreconditionRule::Required, &onceward_stores::in_memory());
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        for fields in [&[][..], &[("idempotency-key", "k")]] {
            let refused = send(&app, method.clone(), fields, "mine").await;
            let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
            assert_eq!((refused.status, refused.replayed), (428, false), "{method} {fields:?}");
            assert_eq!(problem["type"], "urn:onceward:problem:precondition-required");
            assert!(problem["detail"].as_str().unwrap().contains("If-Match"), "{problem}");
        }
    }
    for fields in [
        &[("x-http-method-override", "DELETE")][..],
        &[("x-http-method-override", "PUT"), ("idempotency-key", "o")],
    ] {
        assert_eq!(send(&app, Method::POST, fields, "mine").await.status, 428, "{fields:?}");
    }
    // Nothing was recorded: the same key is free for the request with its precondition.
    let complete = [("idempotency-key", "k"), ("if-match", "\"1\"")];
    assert_eq!(send(&app, Method::PATCH, &complete, "mine").await.status, 200);
    // What is no update of this resource needs none.
    assert_eq!(send(&app, Method::GET, &[], "").await.status, 200);
    assert_eq!(send(&app, Method::POST, &[("idempotency-key", "p")], "more").await.status, 200);
}

#[tokio::test]
async fn a_receipt_comes_before_a_required_precondition() {
    let onceward = onceward_stores::in_memory();
    let key = [("idempotency-key", "edit-3")];
    // The rule became stricter between a request and its retry.
    let before = app_with(PreconditionRule::Optional, &onceward);
    assert_eq!(send(&before, Method::PATCH, &key, "second").await.status, 200);
    let after = app_with(PreconditionRule::Required, &onceward);
    let retry = send(&after, Method::PATCH, &key, "second").await;
    assert_eq!((retry.status, retry.replayed, retry.body.as_str()), (200, true, "second"));
    let reused = send(&after, Method::PATCH, &key, "another").await;
    assert_eq!(reused.status, 422, "the same key with another body is refused as that");
    assert_eq!(send(&after, Method::PATCH, &[("idempotency-key", "new")], "third").await.status, 428);
}
