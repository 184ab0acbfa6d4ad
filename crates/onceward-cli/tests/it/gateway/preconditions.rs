//! Preconditions through the gateway: required where a route says so, and passed on untouched.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;

use super::stage::{Gateway, Home, Received, Reply, Service};
use crate::process::{Answer, eventually, onceward, send};

/// A service with one document. Its tag is its version, and a write needs the current one.
fn document() -> Service {
    let version = Mutex::new(1);
    Service::start(move |request: &Received| {
        let mut version = version.lock().unwrap();
        let expected = request.field("if-match");
        let holds = expected.is_none_or(|tags| tags == format!("\"{version}\""));
        let status = if holds { "200 Fine" } else { "412 Precondition Failed" };
        if holds && !request.line.starts_with("GET") {
            *version += 1;
        }
        let body = format!("{version}");
        let length = body.len();
        Reply::Raw(
            format!("HTTP/1.1 {status}\r\nETag: \"{version}\"\r\nContent-Length: {length}\r\n\r\n{body}")
                .into(),
        )
    })
}

fn stage() -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), document());
    home.write_config("[[route]]\npath = \"/documents/{id}\"\nprecondition = \"required\"\n");
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

fn write(gateway: &Gateway, method: &str, fields: &[(&str, &str)]) -> Answer {
    send(gateway.address, method, "/documents/1", fields, "{}")
}

#[test]
fn an_update_without_a_precondition_gets_428_with_a_key_and_without() {
    let (_home, service, gateway) = stage();
    for method in ["PUT", "PATCH", "DELETE"] {
        for fields in [&[][..], &[("Idempotency-Key", "k")]] {
            let refused = write(&gateway, method, fields);
            assert_eq!(refused.problem(), (428, "precondition-required".into()), "{method} {fields:?}");
        }
        let malformed = write(&gateway, method, &[("If-Match", "1")]);
        assert_eq!(malformed.problem(), (400, "precondition-malformed".into()), "{method}");
    }
    for tag in ["\"a\u{1}\"", "\"a\u{7f}\"", "\"a\tb\""] {
        let raw = format!(
            "PUT /documents/1 HTTP/1.1\r\nHost: a\r\nIf-Match: {tag}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        assert!(gateway.raw(raw.as_bytes()).starts_with("HTTP/1.1 400 "), "{tag:?}");
    }
    assert_eq!(service.effects(), 0, "nothing reached the service");
    assert_eq!(write(&gateway, "GET", &[]).status, 200);
    assert_eq!(send(gateway.address, "PUT", "/elsewhere", &[], "{}").status, 200, "another route");
    let published = &gateway.get("/.well-known/idempotency").json()["routes"][0]["precondition"];
    assert_eq!(published["rule"], "required");
}

#[test]
fn a_retry_after_a_lost_answer_gets_its_answer_although_its_tag_is_stale() {
    let (_home, service, gateway) = stage();
    let fields = [("Idempotency-Key", "edit"), ("If-Match", "\"1\"")];
    // The client is gone before it can read the answer.
    let mut lost = TcpStream::connect(gateway.address).unwrap();
    lost.write_all(
        b"PATCH /documents/1 HTTP/1.1\r\nHost: a\r\nIdempotency-Key: edit\r\nIf-Match: \"1\"\r\n\
          Content-Length: 2\r\n\r\n{}",
    )
    .unwrap();
    eventually("the service has the request", || (service.effects() == 1).then_some(()));
    drop(lost);
    let host = [&fields[..], &[("Host", "a")]].concat();
    let retry = write(&gateway, "PATCH", &host);
    assert_eq!((retry.status, retry.field("etag")), (200, Some("\"2\"")), "{retry:?}");
    assert_eq!(retry.field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 1, "the retry did not reach the service");
    // Another intent with the same tag is a conflict, and stays one only as long as it is: 412 is not recorded.
    for _ in 0..2 {
        let other = write(&gateway, "PATCH", &[("Idempotency-Key", "other"), ("If-Match", "\"1\"")]);
        assert_eq!((other.status, other.field("idempotent-replayed")), (412, None));
    }
    assert_eq!(service.effects(), 3);
    assert_eq!(service.received()[1].field("if-match"), Some("\"1\""), "passed on untouched");
}

#[test]
fn a_required_precondition_that_can_have_no_effect_is_an_error() {
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/a\"\nmethods = [\"POST\"]\nprecondition = \"required\"\n");
    let checked = onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("precondition") && said.contains("PUT, PATCH and DELETE"), "{said}");
}
