//! Responses that are too large to be kept.

use std::time::Duration;

use http::StatusCode;
use onceward_http::{Action, Route};
use tokio::io::AsyncReadExt;

use crate::stage::{Answer, FRAME_BYTES, Stage, until};

#[tokio::test]
async fn a_response_over_the_cap_is_passed_on_whole_and_leaves_a_note() {
    let stage = Stage::start(Route::builder().with_response_bytes_max(1_000).build().unwrap()).await;
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
    let stage = Stage::start(Route::builder().with_response_bytes_max(10).build().unwrap()).await;
    for round in 0..100 {
        let key = format!("k{round}");
        assert_eq!(stage.post(&key, "\"large 5000\"").await.body.len(), 5_000);
        assert_eq!(stage.post(&key, "\"large 5000\"").await.problem(), "response-not-stored");
    }
    assert_eq!(stage.charges(), 100);
}

/// A client that counts bytes recognises the end by itself, so the last byte must wait too.
#[tokio::test]
async fn the_last_byte_of_an_announced_length_waits_for_its_receipt() {
    let stage = Stage::start(Route::builder().with_response_bytes_max(10).build().unwrap()).await;
    for round in 0..100 {
        let fields = [("Idempotency-Key", &*format!("k{round}"))];
        let mut socket = stage.begin("POST", "/charges", &fields, "\"sized 5000\"").await;
        let mut bytes = Vec::new();
        let whole = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() == 5_000)
        };
        while !whole(&bytes) {
            let mut some = [0; 8_192];
            let read = socket.read(&mut some).await.unwrap();
            assert_ne!(read, 0, "the response ended early");
            bytes.extend_from_slice(&some[..read]);
        }
        let retry = stage.send("POST", "/charges", &fields, "\"sized 5000\"").await;
        assert_eq!(retry.problem(), "response-not-stored", "round {round}");
    }
    assert_eq!(stage.charges(), 100);
}

/// A part of a response must never look complete.
#[tokio::test]
async fn a_live_response_that_breaks_off_breaks_off_for_the_client_too() {
    let stage = Stage::start(Route::builder().with_response_bytes_max(10).build().unwrap()).await;
    for body in ["\"large then broken\"", "\"large then panic\""] {
        let first = stage.post(body, body).await;
        assert!(first.status == 0 || !first.whole, "{first:?}");
        let retry = stage.post(body, body).await;
        assert_eq!((retry.status, retry.problem()), (409, "outcome-unknown"), "{body}");
    }
    assert_eq!(stage.charges(), 2);
}

/// A response that is not kept frees its key, whatever its size.
#[tokio::test]
async fn a_live_response_that_frees_the_key_leaves_no_note() {
    let route = Route::builder()
        .with_response_bytes_max(10)
        .with_on_status(StatusCode::OK, Action::Retry)
        .build()
        .unwrap();
    let stage = Stage::start(route).await;
    for charges in 1..=2 {
        let answer = stage.post("k", "\"large 5000\"").await;
        assert_eq!((answer.status, answer.body.len(), answer.whole), (200, 5_000, true));
        assert_eq!(stage.charges(), charges);
    }
}

/// A client that does not read holds neither its key nor a place among the running ones.
#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_and_the_receipt_is_written_without_it() {
    let route = Route::builder().with_response_bytes_max(10).with_write_timeout(Duration::from_millis(50));
    let stage = Stage::start(route.build().unwrap()).await;
    let fields = [("Idempotency-Key", "k")];
    let mut silent = stage.begin("POST", "/charges", &fields, "\"frames 4000\"").await;
    until("it still runs", || stage.meter("slow_clients_cut_off", None) == 1).await;
    let retry = stage.post("k", "\"frames 4000\"").await;
    assert_eq!((retry.status, retry.problem()), (409, "response-not-stored"));
    until("it still counts", || stage.admission.running() == 0).await;
    // What it gets must not look whole.
    let mut bytes = Vec::new();
    let ended = silent.read_to_end(&mut bytes).await;
    assert!(ended.is_err() || !Answer::parse(&bytes).whole);
    assert!(bytes.len() < 4_000 * FRAME_BYTES, "{}", bytes.len());
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_live_response_cancels_nothing() {
    let stage = Stage::start(Route::builder().with_response_bytes_max(10).build().unwrap()).await;
    let mut socket = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "\"large 30000000\"").await;
    let mut some = [0; 1_000];
    socket.read_exact(&mut some).await.unwrap();
    drop(socket);
    let retry = stage.post("k", "\"large 30000000\"").await;
    assert_eq!((retry.status, retry.problem()), (409, "response-not-stored"));
    assert_eq!(stage.charges(), 1);
}
