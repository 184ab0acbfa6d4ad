//! Clients that make a new key for every try.

use std::time::Duration;

use onceward_http::{OnSameRequest, Route, SameRequest};

use crate::stage::{Answer, Stage, until};

async fn stage(on_found: OnSameRequest) -> Stage {
    let rule = SameRequest::within(Duration::from_secs(30)).with_on_found(on_found);
    Stage::start(Route::builder().with_same_request(rule).build().unwrap()).await
}

async fn by(stage: &Stage, who: &str, key: &str, body: &str) -> Answer {
    stage.send("POST", "/charges", &[("Idempotency-Key", key), ("Authorization", who)], body).await
}

#[tokio::test]
async fn the_same_request_under_another_key_is_refused() {
    let stage = stage(OnSameRequest::Refuse).await;
    let first = by(&stage, "Bearer a", "one", "{\"amount\":1}").await;
    assert_eq!(first.status, 201);
    let refused = by(&stage, "Bearer a", "two", "{ \"amount\": 1 }").await;
    assert_eq!((refused.status, refused.problem()), (409, "same-request-other-key"));
    assert!(refused.body.contains("\"retryable\":false"));
    let replay = by(&stage, "Bearer a", "one", "{\"amount\":1}").await;
    assert_eq!((&replay.body, replay.field("idempotent-replayed")), (&first.body, Some("true")));
    // Another content, or another caller.
    assert_eq!(by(&stage, "Bearer a", "three", "{\"amount\":2}").await.status, 201);
    assert_eq!(by(&stage, "Bearer b", "one", "{\"amount\":1}").await.status, 201);
    assert_eq!(stage.charges(), 3);
    assert_eq!(stage.meter("same_requests_other_key", None), 1);
    until("the other scope is not counted", || stage.meter("same_requests_other_scope", None) == 1).await;
    // Nothing is recorded under the refused key: it is free for something else.
    assert_eq!(by(&stage, "Bearer a", "two", "{\"amount\":3}").await.status, 201);
}

#[tokio::test]
async fn copies_at_once_under_different_keys_are_one_charge() {
    let stage = std::sync::Arc::new(stage(OnSameRequest::Refuse).await);
    let mut copies = tokio::task::JoinSet::new();
    for at in 0..20 {
        let stage = stage.clone();
        copies.spawn(async move { by(&stage, "Bearer a", &format!("key-{at}"), "{}").await.status });
    }
    let answers = copies.join_all().await;
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 1, "{answers:?}");
    assert_eq!((stage.charges(), stage.meter("same_requests_other_key", None)), (1, 19));
}

#[tokio::test]
async fn a_first_try_that_freed_its_key_stands_in_nobodys_way() {
    let stage = stage(OnSameRequest::Refuse).await;
    assert_eq!(by(&stage, "Bearer a", "one", "\"status 429\"").await.status, 429);
    assert_eq!(by(&stage, "Bearer a", "two", "\"status 429\"").await.status, 429);
    assert_eq!((stage.charges(), stage.meter("same_requests_other_key", None)), (2, 0));
    // One with an unknown outcome does.
    assert_eq!(by(&stage, "Bearer a", "three", "\"unanswered\"").await.status, 504);
    assert_eq!(by(&stage, "Bearer a", "four", "\"unanswered\"").await.problem(), "same-request-other-key");
}

/// The first try frees its key. What comes behind it is what is compared from then on.
#[tokio::test]
async fn behind_a_freed_first_try_the_second_one_counts() {
    let stage = stage(OnSameRequest::Refuse).await;
    assert_eq!(by(&stage, "Bearer a", "one", "\"429 once\"").await.status, 429);
    assert_eq!(by(&stage, "Bearer a", "two", "\"429 once\"").await.status, 201);
    let third = by(&stage, "Bearer a", "three", "\"429 once\"").await;
    assert_eq!((third.status, third.problem()), (409, "same-request-other-key"));
    // Also the first key is another one now.
    assert_eq!(by(&stage, "Bearer a", "one", "\"429 once\"").await.problem(), "same-request-other-key");
    assert_eq!(
        by(&stage, "Bearer a", "two", "\"429 once\"").await.field("idempotent-replayed"),
        Some("true")
    );
    assert_eq!((stage.charges(), stage.meter("same_requests_other_key", None)), (2, 2));
}

#[tokio::test]
async fn copies_at_once_behind_a_freed_first_try_are_one_charge() {
    let stage = std::sync::Arc::new(stage(OnSameRequest::Refuse).await);
    for key in ["one", "two", "three"] {
        assert_eq!(by(&stage, "Bearer a", key, "\"429 thrice\"").await.status, 429, "{key}");
    }
    let mut copies = tokio::task::JoinSet::new();
    for at in 0..20 {
        let stage = stage.clone();
        let copy = async move { by(&stage, "Bearer a", &format!("key-{at}"), "\"429 thrice\"").await.status };
        copies.spawn(copy);
    }
    let answers = copies.join_all().await;
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 1, "{answers:?}");
    assert_eq!((stage.charges(), stage.meter("same_requests_other_key", None)), (4, 19));
}

#[tokio::test]
async fn by_default_nothing_is_looked_for_and_counting_refuses_nothing() {
    let plain = Stage::start(Route::default()).await;
    let counting = stage(OnSameRequest::Count).await;
    for stage in [&plain, &counting] {
        for key in ["one", "two", "three"] {
            assert_eq!(by(stage, "Bearer a", key, "{}").await.status, 201);
        }
        assert_eq!(stage.charges(), 3);
    }
    until("it is not counted", || counting.meter("same_requests_other_key", None) == 2).await;
    assert_eq!(plain.meter("same_requests_other_key", None), 0);
    assert_eq!(counting.meter("same_requests_other_scope", None), 0);
    // Callers without a name may all be different people.
    for key in ["one", "two"] {
        let fields = [("Idempotency-Key", key), ("X-Customer", key)];
        counting.send("POST", "/charges", &fields, "{}").await;
    }
    assert_eq!(counting.meter("same_requests_other_scope", None), 0);
}

#[test]
fn a_window_has_bounds() {
    for window in [Duration::ZERO, Duration::from_hours(25)] {
        let route = Route::builder().with_same_request(SameRequest::within(window)).build();
        assert!(route.unwrap_err().to_string().contains("24 hours"));
    }
}
