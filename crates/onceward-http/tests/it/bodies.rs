//! Which bodies count as the same request.

use std::fmt::Write;

use onceward_http::Route;

use crate::stage::{Answer, Stage};

const NOTE: &str = "Content-Disposition: form-data; name=\"note\"\r\n\r\nfor the rent";
const SCAN: &str = "Content-Disposition: form-data; name=\"scan\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n--x\r\n";

#[tokio::test]
async fn a_form_of_parts_is_the_same_under_any_boundary() {
    let stage = Stage::start(Route::default()).await;
    let first = send(&stage, "boundary=AaB03x", "AaB03x", &[NOTE, SCAN]).await;
    assert_eq!((first.status, first.field("idempotent-replayed")), (201, None));
    for (parameter, boundary) in [
        ("boundary=AaB03x", "AaB03x"),
        ("boundary=----WebKitFormBoundary7MA4YWxk", "----WebKitFormBoundary7MA4YWxk"),
        ("charset=utf-8; boundary=\"a new one\"", "a new one"),
    ] {
        let again = send(&stage, parameter, boundary, &[NOTE, SCAN]).await;
        assert_eq!((again.status, &again.body), (201, &first.body), "{parameter}");
        assert_eq!(again.field("idempotent-replayed"), Some("true"), "{parameter}");
    }
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn a_form_with_another_part_is_another_request() {
    let stage = Stage::start(Route::default()).await;
    assert_eq!(send(&stage, "boundary=b", "b", &[NOTE, SCAN]).await.status, 201);
    let (value, file) = (NOTE.replace("rent", "boat"), SCAN.replace("a.png", "b.png"));
    let parts: [&[&str]; 5] = [&[&value, SCAN], &[NOTE, &file], &[NOTE], &[SCAN, NOTE], &[NOTE, SCAN, NOTE]];
    for parts in parts {
        let other = send(&stage, "boundary=b", "b", parts).await;
        assert_eq!((other.status, other.problem()), (422, "key-reused"), "{parts:?}");
    }
    // A boundary that is not the one in the body: nothing can be taken apart, so every byte counts.
    let other = send(&stage, "boundary=c", "b", &[NOTE, SCAN]).await;
    assert_eq!((other.status, other.problem()), (422, "key-reused"));
    assert_eq!(stage.charges(), 1);
}

/// Sends these parts with this boundary, all under one key.
async fn send(stage: &Stage, parameter: &str, boundary: &str, parts: &[&str]) -> Answer {
    let mut body = String::new();
    for part in parts {
        write!(body, "--{boundary}\r\n{part}\r\n").unwrap();
    }
    write!(body, "--{boundary}--\r\n").unwrap();
    let media = format!("multipart/form-data; {parameter}");
    stage.send("POST", "/charges", &[("Idempotency-Key", "k"), ("Content-Type", &media)], &body).await
}
