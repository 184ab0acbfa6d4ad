//! Concurrent duplicates, and clients that disconnect.

use onceward_http::Route;

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_copies_at_once_are_one_charge_and_one_answer() {
    let stage = std::sync::Arc::new(Stage::start(Route::default()).await);
    let rounds = if std::env::var_os("ONCEWARD_LONG").is_some() { 100 } else { 5 };
    for round in 1..=rounds {
        let key = format!("round-{round}");
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let (stage, key) = (stage.clone(), key.clone());
            copies.spawn(async move { stage.post(&key, "{\"amount\":12}").await });
        }
        let answers = copies.join_all().await;
        assert_eq!(stage.charges(), round);
        assert!(answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body));
        let fresh = answers.iter().filter(|answer| answer.field("idempotent-replayed").is_none()).count();
        assert_eq!(fresh, 1);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let stage = Stage::start(Route::default()).await;
    let socket = stage.begin_running("{}").await;
    drop(socket);
    stage.gate.send_replace(true);
    let retry = stage.post("k", "{}").await;
    assert_eq!((retry.status, retry.body.as_str()), (201, "charge 1"));
    assert_eq!(retry.field("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn a_retry_with_equivalent_json_is_the_same_request() {
    let stage = Stage::start(Route::default()).await;
    stage.post("k", r#"{"amount":2,"currency":"EUR"}"#).await;
    let retry = stage.post("k", "{ \"currency\": \"\\u0045UR\", \"amount\": 20e-1 }").await;
    assert_eq!(retry.field("idempotent-replayed"), Some("true"), "{retry:?}");
    let other = stage.post("k", r#"{"amount":"2","currency":"EUR"}"#).await;
    assert_eq!(other.problem(), "key-reused");
}
