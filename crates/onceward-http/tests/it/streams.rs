//! Responses too large to be kept.

use onceward_http::Route;

use crate::stage::Stage;

#[tokio::test]
async fn a_response_over_the_cap_is_passed_on_whole_and_leaves_a_note() {
    let stage = Stage::start(Route::default().response_bytes_max(1_000)).await;
    let kept = stage.post("small", "\"large 1000\"").await;
    assert_eq!((kept.status, kept.body.len()), (200, 1_000));
    assert_eq!(stage.post("small", "\"large 1000\"").await.field("idempotent-replayed"), Some("true"));

    for bytes in [1_001, 3_000_000] {
        let key = format!("large-{bytes}");
        let body = format!("\"large {bytes}\"");
        let first = stage.post(&key, &body).await;
        assert_eq!((first.status, first.body.len()), (200, bytes));
        let retry = stage.post(&key, &body).await;
        assert_eq!((retry.status, retry.problem()), (409, "response-not-stored"));
        assert!(retry.body.contains("\"original_status\":200"), "{}", retry.body);
    }
    assert_eq!(stage.charges(), 3);
}

/// The note must be there when the last byte is: a retry sent right after the end never runs.
#[tokio::test]
async fn the_end_of_a_live_response_waits_for_its_receipt() {
    let stage = Stage::start(Route::default().response_bytes_max(10)).await;
    for round in 0..100 {
        let key = format!("k{round}");
        assert_eq!(stage.post(&key, "\"large 5000\"").await.body.len(), 5_000);
        assert_eq!(stage.post(&key, "\"large 5000\"").await.problem(), "response-not-stored");
    }
    assert_eq!(stage.charges(), 100);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_live_response_cancels_nothing() {
    let stage = Stage::start(Route::default().response_bytes_max(10)).await;
    let mut socket = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "\"large 30000000\"").await;
    let mut some = [0; 1_000];
    tokio::io::AsyncReadExt::read_exact(&mut socket, &mut some).await.unwrap();
    drop(socket);
    let retry = stage.post("k", "\"large 30000000\"").await;
    assert_eq!((retry.status, retry.problem()), (409, "response-not-stored"));
    assert_eq!(stage.charges(), 1);
}
