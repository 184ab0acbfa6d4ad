//! Which responses are kept, which free the key, and which leave the outcome unknown.

use http::StatusCode;
use onceward::{OnUnknown, Policy};
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
    let seen =
        twice(Route::builder().with_on_status(teapot, Action::Retry).build().unwrap(), "\"status 418\"")
            .await;
    assert_eq!(seen, (418, 418, false, 2));
    let seen =
        twice(Route::builder().with_on_server_error(Action::Replay).build().unwrap(), "\"status 500\"").await;
    assert_eq!(seen, (500, 500, true, 1));
    let seen =
        twice(Route::builder().with_on_server_error(Action::Unknown).build().unwrap(), "\"status 500\"")
            .await;
    assert_eq!(seen, (500, 409, false, 1));
}

/// A forwarder knows more than the status says.
#[tokio::test]
async fn the_service_has_the_last_word_on_its_response() {
    let held = || Route::builder().with_on_server_error(Action::Replay).build().unwrap();
    assert_eq!(twice(held(), "\"unsent\"").await, (502, 502, false, 2), "nothing was sent: it runs again");
    assert_eq!(twice(held(), "\"unanswered\"").await, (504, 409, false, 1), "sent: it does not");
    assert_eq!(twice(Route::default(), "\"final 503\"").await, (503, 503, true, 1));
    let retry = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    assert_eq!(
        twice(Route::builder().with_policy(retry).build().unwrap(), "\"unanswered\"").await,
        (504, 504, false, 2)
    );
    let queue = Route::preset("queue").unwrap();
    assert_eq!(
        twice(queue, "\"final 409\"").await,
        (409, 409, false, 2),
        "a policy that keeps no failures keeps none"
    );
}

/// Everyone who waits for a run that did nothing has a turn, one after the other.
#[tokio::test]
async fn a_response_that_frees_the_key_lets_waiting_requests_run() {
    let stage = std::sync::Arc::new(Stage::start(Route::default()).await);
    let running = stage.begin_running("\"unsent\"").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let stage = stage.clone();
        waiting.spawn(async move { stage.post("k", "\"unsent\"").await });
    }
    stage.guarded_begun(6).await;
    stage.gate.send_replace(true);
    let mut bodies: Vec<_> =
        waiting.join_all().await.into_iter().map(|answer| (answer.status, answer.body)).collect();
    bodies.sort();
    let expect: Vec<_> = (2..=6).map(|number| (502, format!("try {number}"))).collect();
    assert_eq!(bodies, expect);
    drop(running);
}

#[tokio::test]
async fn a_response_that_breaks_off_is_unknown_or_tried_again_and_says_which() {
    let stage = Stage::start(Route::default()).await;
    for _ in 0..2 {
        let answer = stage.post("k", "\"broken\"").await;
        assert_eq!((answer.status, answer.problem()), (409, "outcome-unknown"));
        assert!(answer.body.contains("\"retryable\":false"), "{}", answer.body);
        assert_eq!(answer.field("retry-after"), None);
    }
    assert_eq!(stage.charges(), 1);
    let retry = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    let stage = Stage::start(Route::builder().with_policy(retry).build().unwrap()).await;
    for charges in 1..=2 {
        let answer = stage.post("k", "\"broken\"").await;
        assert_eq!((answer.status, answer.problem()), (409, "outcome-unknown"));
        assert!(answer.body.contains("\"retryable\":true"), "{}", answer.body);
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert_eq!(stage.charges(), charges);
    }
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
