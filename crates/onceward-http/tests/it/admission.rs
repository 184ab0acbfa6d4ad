//! The limits of running intents, of one caller and of bodies in memory.

use std::sync::Arc;

use onceward::Limits;
use onceward_http::{Admission, Route};
use onceward_stores::MemoryStore;

use crate::stage::{Stage, until};

async fn within(admission: Admission) -> Arc<Stage> {
    let store = Arc::new(MemoryStore::new());
    Arc::new(Stage::within(admission, store, Limits::default(), Route::default()).await)
}

#[tokio::test]
async fn new_work_over_the_bound_is_refused_while_replays_pass_and_duplicates_wait() {
    let stage = within(Admission::new().with_running_max(1)).await;
    let done = stage.post("done", "{}").await;
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "{}").await;
    stage.charges_begun(2).await;
    let duplicate = tokio::spawn({
        let stage = stage.clone();
        async move { stage.post("k", "{}").await }
    });
    let refused = stage.post("new", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(refused.body.contains("\"retryable\":true"), "{}", refused.body);
    for _ in 0..2 {
        let replay = stage.post("done", "{}").await;
        assert_eq!((&replay.body, replay.field("idempotent-replayed")), (&done.body, Some("true")));
    }
    assert_eq!(stage.post("k", "[]").await.problem(), "key-reused");
    stage.gate.send_replace(true);
    assert_eq!(duplicate.await.unwrap().body, "charge 2");
    drop(running);
    until("the permit was not returned", || stage.admission.running() == 0).await;
    assert_eq!(stage.post("new", "{}").await.status, 201);
    assert_eq!(stage.charges(), 3);
}

/// With any number of requests at once, no more run than the limit allows, and every request is answered.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_stay_within_the_limit() {
    let stage = within(Admission::new().with_running_max(3)).await;
    stage.gate.send_replace(false);
    let mut posts = tokio::task::JoinSet::new();
    for at in 0..50 {
        let stage = stage.clone();
        posts.spawn(async move { stage.post(&format!("k{at}"), "{}").await });
    }
    let mut refused = 0;
    while refused < 47 {
        let answer = posts.join_next().await.unwrap().unwrap();
        assert_eq!((answer.status, answer.problem()), (503, "overloaded"));
        refused += 1;
    }
    assert_eq!((stage.charges(), stage.admission.running()), (3, 3));
    stage.gate.send_replace(true);
    assert!(posts.join_all().await.iter().all(|answer| answer.status == 201));
}

#[tokio::test]
async fn a_caller_over_its_quota_is_refused_and_others_are_not() {
    let stage = within(Admission::new().with_running_per_scope_max(1)).await;
    stage.gate.send_replace(false);
    let by =
        |who| [("Idempotency-Key", "k"), ("Authorization", if who == "a" { "Bearer a" } else { "Bearer b" })];
    let running = [
        stage.begin("POST", "/charges", &by("a"), "{}").await,
        stage.begin("POST", "/charges", &by("b"), "{}").await,
    ];
    stage.charges_begun(2).await;
    let again = [("Idempotency-Key", "other"), ("Authorization", "Bearer a")];
    let refused = stage.send("POST", "/charges", &again, "{}").await;
    assert_eq!((refused.status, refused.problem()), (429, "quota-exceeded"));
    assert_eq!(refused.field("retry-after"), Some("1"));
    stage.gate.send_replace(true);
    until("the permit was not returned", || stage.admission.running() == 0).await;
    assert_eq!(stage.send("POST", "/charges", &again, "{}").await.status, 201);
    drop(running);
}

#[tokio::test]
async fn bodies_in_memory_are_bounded_and_released() {
    let stage = within(Admission::new().with_body_bytes_max(100)).await;
    let large = format!("\"{}\"", "x".repeat(60));
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], &large).await;
    stage.charges_begun(1).await;
    let refused = stage.post("other", &large).await;
    assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    stage.gate.send_replace(true);
    drop(running);
    until("the permit was not returned", || stage.admission.body_bytes() == 0).await;
    assert_eq!(stage.post("other", &large).await.status, 201);
}
