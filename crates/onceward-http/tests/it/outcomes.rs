//! Which responses are kept, which free the key, which leave a doubt.

use http::StatusCode;
use onceward_http::{Action, Route};

use crate::stage::Stage;

/// Sends twice and tells the two statuses, and whether the second was a replay.
async fn twice(route: Route, body: &str) -> (u16, u16, bool, usize) {
    let stage = Stage::start(route).await;
    let first = stage.post("k", body).await;
    let second = stage.post("k", body).await;
    (first.status, second.status, second.field("idempotent-replayed").is_some(), stage.charges())
}

#[tokio::test]
async fn each_class_has_its_rule() {
    for (code, replayed) in [
        (200, true),
        (204, true),
        (302, true),
        (400, true),
        (402, true),
        (404, true),
        (408, false),
        (412, false),
        (425, false),
        (429, false),
        (500, false),
        (503, false),
    ] {
        let seen = twice(Route::default(), &format!("\"status {code}\"")).await;
        assert_eq!(seen, (code, code, replayed, if replayed { 1 } else { 2 }), "{code}");
    }
}

#[tokio::test]
async fn a_route_can_say_otherwise() {
    let teapot = StatusCode::IM_A_TEAPOT;
    let seen = twice(Route::default().on_status(teapot, Action::Retry), "\"status 418\"").await;
    assert_eq!(seen, (418, 418, false, 2));
    let seen = twice(Route::default().on_server_error(Action::Replay), "\"status 500\"").await;
    assert_eq!(seen, (500, 500, true, 1));
    let seen = twice(Route::default().on_server_error(Action::Unknown), "\"status 500\"").await;
    assert_eq!(seen, (500, 409, false, 1));
}

#[tokio::test]
async fn a_panic_leaves_the_outcome_unknown_and_is_not_run_again() {
    let stage = Stage::start(Route::default()).await;
    let first = stage.post("k", "\"panic\"").await;
    assert_eq!(first.status, 0, "the connection breaks, as it does without the layer");
    let retry = stage.post("k", "\"panic\"").await;
    assert_eq!((retry.status, retry.problem()), (409, "outcome-unknown"));
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn the_handler_has_the_lease() {
    let stage = Stage::start(Route::default()).await;
    let child = stage.post("k", "\"child\"").await.body;
    assert_eq!(child.len(), 36, "{child}");
    let other = stage.post("other", "\"child\"").await.body;
    assert_ne!(child, other);
}
