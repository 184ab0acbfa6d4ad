//! The lease as an argument of handlers, and responses as outcomes.

use std::future::poll_fn;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use onceward::{Snapshot, Verdict};
use onceward_http::{KeyRule, OncewardLayer, RequestLease, ResponseLease, Route, snapshot};
use tower_service::Service;

async fn fence(RequestLease(lease): RequestLease) -> String {
    format!("{}", lease.fence().0 > 0)
}

async fn fence_if_guarded(lease: Option<RequestLease>) -> &'static str {
    if lease.is_some_and(|lease| lease.fence().0 > 0) { "guarded" } else { "not guarded" }
}

async fn commits(lease: ResponseLease) -> String {
    lease.id().key().to_owned()
}

async fn commits_if_guarded(lease: Option<ResponseLease>) -> &'static str {
    if lease.is_some() { "guarded" } else { "not guarded" }
}

fn app() -> Router {
    Router::new()
        .route("/fence", post(fence))
        .route("/optional", post(fence_if_guarded))
        .route("/commits", post(commits))
        .route("/commits-optional", post(commits_if_guarded))
}

async fn ask(mut app: Router, path: &str, key: Option<&str>) -> (u16, String) {
    let mut request = Request::post(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    poll_fn(|cx| Service::<Request>::poll_ready(&mut app, cx)).await.unwrap();
    let response = app.call(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_handler_is_given_the_lease_of_its_request() {
    let route = Route::builder().with_key(KeyRule::Optional).with_effects_in_transaction().build().unwrap();
    let app = app().layer(OncewardLayer::new(onceward_stores::in_memory(), [7; 32], route));
    for (path, expected) in
        [("/fence", "true"), ("/optional", "guarded"), ("/commits", "k"), ("/commits-optional", "guarded")]
    {
        assert_eq!(ask(app.clone(), path, Some("k")).await, (200, expected.into()), "{path}");
    }
    // Without a key there is no run, and so no lease.
    for path in ["/optional", "/commits-optional"] {
        assert_eq!(ask(app.clone(), path, None).await, (200, "not guarded".into()), "{path}");
    }
    let (status, message) = ask(app, "/fence", None).await;
    assert!(status == 500 && message.contains("Option<RequestLease>"), "{status}: {message}");
}

#[tokio::test]
async fn a_handler_without_the_layer_is_told_which_one_is_missing() {
    let (status, message) = ask(app(), "/fence", Some("k")).await;
    assert!(status == 500 && message.contains("onceward_http::OncewardLayer"), "{status}: {message}");
    assert_eq!(ask(app(), "/optional", Some("k")).await, (200, "not guarded".into()));

    // The layer is there, but the route does not say that effects are in the transaction.
    let plain = app().layer(OncewardLayer::new(onceward_stores::in_memory(), [7; 32], Route::default()));
    let (status, message) = ask(plain, "/commits", Some("k")).await;
    assert!(status == 500 && message.contains("with_effects_in_transaction"), "{status}: {message}");
}

#[test]
fn a_response_becomes_the_outcome_that_it_is_replayed_from() {
    let route = Route::builder().with_response_bytes_max(10).build().unwrap();
    let response = |status: StatusCode, body: &'static str| {
        let response = Response::builder().status(status);
        response.header("x-charge", "81").header("set-cookie", "of one browser").body(body).unwrap()
    };
    let outcome = route.outcome(&response(StatusCode::CREATED, "charged"));
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let replayed = snapshot::decode(outcome.body()).unwrap();
    assert_eq!((replayed.status(), &replayed.body()[..]), (StatusCode::CREATED, &b"charged"[..]));
    assert_eq!(replayed.headers().len(), 1, "{:?}", replayed.headers());
    assert_eq!(replayed.headers()["x-charge"], "81");

    let declined = route.outcome(&response(StatusCode::PAYMENT_REQUIRED, "declined"));
    assert_eq!(declined.verdict(), Verdict::Failed);
    let large = route.outcome(&response(StatusCode::OK, "longer than ten bytes"));
    assert_eq!(*large.snapshot(), Snapshot::Omitted("200".into()));
}
