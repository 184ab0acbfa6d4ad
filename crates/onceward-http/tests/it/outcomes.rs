//! Which responses are kept, which free the key, and which leave the outcome unknown.

use std::sync::Arc;

use http::StatusCode;
use onceward::{Changed, Id, Limits, OnUnknown, Onceward, Policy, Settlement};
use onceward_http::{Action, Route, StatusClass};
use onceward_stores::MemoryStore;

use crate::stage::Stage;

/// Sends twice and tells the two statuses, and whether the second was a replay.
async fn twice(route: Route, body: &str) -> (u16, u16, bool, usize) {
    let stage = Stage::start(route).await;
    let first = stage.post("k", body).await;
    let second = stage.post("k", body).await;
    (first.status, second.status, second.field("idempotent-replayed").is_some(), stage.charges())
}

/// What a retry of a request gets whose first try got this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The same answer, replayed.
    Replayed,
    /// It runs again.
    RunAgain,
    /// `outcome-unknown`; it does not run again.
    Unknown,
}

#[track_caller]
fn check(seen: (u16, u16, bool, usize), status: u16, then: Then, row: &str) {
    let expected = match then {
        Then::Replayed => (status, status, true, 1),
        Then::RunAgain => (status, status, false, 2),
        Then::Unknown => (status, 409, false, 1),
    };
    assert_eq!(seen, expected, "{row}");
}

#[tokio::test]
async fn each_status_has_its_rule() {
    for status in [200, 201, 202, 204, 207, 301, 303, 400, 402, 404, 409, 410, 418, 422, 500, 501, 505, 511] {
        check(
            twice(Route::default(), &format!("\"status {status}\"")).await,
            status,
            Then::Replayed,
            "decided",
        );
    }
    for status in [401, 403, 407, 412, 421, 423, 425, 426, 428, 429] {
        check(
            twice(Route::default(), &format!("\"status {status}\"")).await,
            status,
            Then::RunAgain,
            "refused",
        );
    }
    for status in [408, 502, 503, 504, 520, 529, 598, 599] {
        check(twice(Route::default(), &format!("\"status {status}\"")).await, status, Then::Unknown, "lost");
    }
}

/// `Retry-After` says when to come back. Only on a 409 does it say that nothing has begun.
#[tokio::test]
async fn a_time_to_come_back_proves_nothing_except_on_a_conflict() {
    for (status, then) in
        [(409, Then::RunAgain), (503, Then::Unknown), (408, Then::Unknown), (500, Then::Replayed)]
    {
        check(
            twice(Route::default(), &format!("\"later {status}\"")).await,
            status,
            then,
            "with Retry-After",
        );
    }
}

#[tokio::test]
async fn a_problem_of_another_onceward_behind_says_more_than_its_status() {
    for (status, name, then) in [
        (503, "overloaded", Then::RunAgain),
        (503, "store-unavailable", Then::RunAgain),
        (429, "quota-exceeded", Then::RunAgain),
        (409, "in-progress", Then::RunAgain),
        (409, "outcome-unknown", Then::Unknown),
        (422, "key-reused", Then::Replayed),
    ] {
        check(twice(Route::default(), &format!("\"problem {status} {name}\"")).await, status, then, name);
    }
}

#[tokio::test]
async fn a_handler_can_say_what_became_of_the_effect() {
    for status in [200, 401, 500, 503] {
        for (effect, then) in
            [("none", Then::RunAgain), ("decided", Then::Replayed), ("unknown", Then::Unknown)]
        {
            check(
                twice(Route::default(), &format!("\"effect {effect} {status}\"")).await,
                status,
                then,
                effect,
            );
        }
    }
}

#[tokio::test]
async fn a_route_can_say_otherwise() {
    let route = |class, action| Route::builder().with_on_class(class, action).build().unwrap();
    for (status, then) in [(500, Then::RunAgain), (501, Then::RunAgain), (510, Then::RunAgain)]
        .into_iter()
        .chain([502, 503, 504, 520, 599].map(|hop| (hop, Then::Unknown)))
    {
        let route = route(StatusClass::ServerError, Action::Retry);
        check(
            twice(route, &format!("\"status {status}\"")).await,
            status,
            then,
            "a class covers what is not named",
        );
    }
    let seen = twice(route(StatusClass::ServerError, Action::Unknown), "\"status 500\"").await;
    check(seen, 500, Then::Unknown, "5xx = unknown");
    let seen = twice(route(StatusClass::ClientError, Action::Retry), "\"status 408\"").await;
    check(seen, 408, Then::Unknown, "408 is named");
    for (status, action, then) in [
        (418, Action::Retry, Then::RunAgain),
        (503, Action::Retry, Then::RunAgain),
        (503, Action::Replay, Then::Replayed),
        (429, Action::Replay, Then::Replayed),
        (599, Action::Retry, Then::RunAgain),
    ] {
        let status_code = StatusCode::from_u16(status).unwrap();
        let route = Route::builder()
            .with_on_class(StatusClass::ServerError, Action::Unknown)
            .with_on_status(status_code, action)
            .build()
            .unwrap();
        check(twice(route, &format!("\"status {status}\"")).await, status, then, "a status is set by itself");
    }
}

#[tokio::test]
async fn presets_differ_in_what_they_keep() {
    for (preset, status, then) in [
        ("stripe", 500, Then::Replayed),
        ("stripe", 408, Then::Replayed),
        ("stripe", 503, Then::Replayed),
        ("stripe", 599, Then::Replayed),
        ("stripe", 401, Then::RunAgain),
        ("stripe", 429, Then::RunAgain),
        ("ledger", 500, Then::Replayed),
        ("ledger", 503, Then::Unknown),
        ("transactional", 500, Then::RunAgain),
        ("transactional", 501, Then::RunAgain),
        ("transactional", 503, Then::Unknown),
        ("transactional", 520, Then::Unknown),
        ("transactional", 408, Then::Unknown),
        ("transactional", 404, Then::Replayed),
        ("queue", 204, Then::Replayed),
        ("queue", 303, Then::RunAgain),
        ("queue", 404, Then::RunAgain),
        ("queue", 408, Then::RunAgain),
        ("queue", 500, Then::RunAgain),
        ("queue", 504, Then::RunAgain),
    ] {
        let route = Route::preset(preset).unwrap();
        check(twice(route, &format!("\"status {status}\"")).await, status, then, preset);
    }
}

/// A body that was cut off looks whole if it has neither a length nor chunks.
#[tokio::test]
async fn a_body_without_a_reliable_end_is_not_replayed() {
    let stage = Stage::start(Route::default()).await;
    for (key, status) in [("a", 201), ("b", 500)] {
        let body = format!("\"undelimited {status}\"");
        assert_eq!(stage.post(key, &body).await.status, status);
        let retry = stage.post(key, &body).await;
        assert_eq!((retry.status, retry.problem()), (409, "response-not-stored"));
        assert!(retry.body.contains(&format!("\"original_status\":{status}")), "{}", retry.body);
    }
    assert_eq!(stage.charges(), 2);
    // What is not kept anyway is not changed by it.
    check(twice(Route::default(), "\"undelimited 429\"").await, 429, Then::RunAgain, "429");
    check(twice(Route::default(), "\"undelimited 503\"").await, 503, Then::Unknown, "503");
}

/// After an unknown outcome that somebody has settled as not done, the earlier copy may still be the reason of a conflict.
#[tokio::test]
async fn a_conflict_on_a_run_after_an_unknown_outcome_is_unknown_too() {
    for (status, unknown) in [(409, true), (412, true), (423, true), (425, true), (404, false), (201, false)]
    {
        let store = Arc::new(MemoryStore::new());
        let elsewhere = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
        let stage = Stage::over(store, Limits::default(), Route::default()).await;
        let body = format!("\"lost then {status}\"");
        assert_eq!(stage.post("k", &body).await.status, 504);
        let id = Id::new("anonymous", "POST /charges", "k").unwrap();
        let receipt = elsewhere.receipt(&id).await.unwrap().unwrap();
        let (fence, policy) = (receipt.status.fence(), Policy::http());
        // By default it is not believed yet: what the handler has called may still go on.
        let too_soon = elsewhere.settle(&id, fence, &Settlement::NotDone, &policy).await.unwrap_err();
        assert!(too_soon.to_string().contains("may still take effect"), "{too_soon}");
        let settled = elsewhere.settle(&id, fence, &Settlement::ForceNotDone, &policy).await.unwrap();
        assert_eq!(settled, Changed::Applied);
        assert_eq!(stage.post("k", &body).await.status, status);
        let retry = stage.post("k", &body).await;
        if unknown {
            assert_eq!((retry.status, retry.problem()), (409, "outcome-unknown"), "{status}");
        } else {
            assert_eq!((retry.status, retry.field("idempotent-replayed")), (status, Some("true")));
        }
        assert_eq!(stage.charges(), 2);
    }
}

/// The same on a run that took over by policy: a conflict is not the answer, so it is tried again.
#[tokio::test]
async fn a_conflict_on_a_run_that_took_over_is_not_kept() {
    let retry = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    for (status, charges) in [(409, 3), (404, 2)] {
        let stage = Stage::start(Route::builder().with_policy(retry.clone()).build().unwrap()).await;
        let body = format!("\"lost then {status}\"");
        for expected in [504, status, status] {
            assert_eq!(stage.post("k", &body).await.status, expected);
        }
        assert_eq!(stage.charges(), charges, "{status}");
    }
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
