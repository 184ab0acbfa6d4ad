//! Slow, oversized and malicious requests: no hang, no second effect, and no request that the service parses differently
//! than the gateway.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::stage::{Gateway, Home, Service};

fn stage(config: &str, flags: &[&str]) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start_with(&service.url(), flags);
    (home, service, gateway)
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let (_home, service, gateway) = stage("", &["--head-timeout", "300ms"]);
    let said = gateway.raw(b"POST /charges HTTP/1.1\r\nHost: a\r\nX: ");
    assert!(matches!(status(&said), 0 | 408), "{said}");
    assert_eq!(service.effects(), 0);
}

#[test]
fn a_body_that_never_ends_is_cut_off() {
    let (_home, service, gateway) = stage("", &["--body-grace", "300ms"]);
    for key in ["Idempotency-Key: a\r\n", ""] {
        let said = gateway
            .raw(format!("POST /c HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 9\r\n\r\n12").as_bytes());
        assert!(matches!(status(&said), 0 | 400..=599), "{said}");
    }
    assert_eq!(service.effects(), 0);
    assert_eq!(gateway.charge("a", "{}").status, 201, "the key is free");
}

#[test]
fn a_body_below_the_minimum_rate_is_cut_off() {
    let (_home, service, gateway) = stage("", &["--body-grace", "300ms"]);
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let head = "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a\r\nContent-Length: 100000\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    // One byte every fifty milliseconds would take over an hour.
    let mut said = Vec::new();
    for _ in 0..1200 {
        let mut bytes = [0; 1024];
        if socket.write_all(b"x").is_err() {
            break;
        }
        match socket.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => said.extend(&bytes[..count]),
            Err(_) => {}
        }
        if !said.is_empty() {
            break;
        }
    }
    let said = String::from_utf8_lossy(&said);
    assert!(matches!(status(&said), 0 | 400..=599), "{said}");
    assert_eq!(service.effects(), 0);
}

#[test]
fn heads_and_bodies_over_their_limits_are_refused() {
    let (_home, service, gateway) = stage("[defaults]\nrequest_bytes_max = 10", &[]);
    let huge = format!("POST /c HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    assert_eq!(status(&gateway.raw(huge.as_bytes())), 431);
    let mut many = String::from("POST /c HTTP/1.1\r\nHost: a\r\n");
    for number in 0..500 {
        write!(many, "X-{number}: 1\r\n").unwrap();
    }
    assert_eq!(status(&gateway.raw(format!("{many}\r\n").as_bytes())), 431);
    assert_eq!(gateway.charge("a", "12345678901").problem(), (413, "body-too-large".into()));
    let chunked = "POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n";
    assert_eq!(status(&gateway.raw(chunked.as_bytes())), 413);
    assert_eq!(service.effects(), 0);
}

#[test]
fn ambiguous_requests_never_reach_the_service_as_two() {
    let (_home, service, gateway) = stage("", &[]);
    let smuggled = "POST /smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let shapes = [
        // Both lengths.
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
            5 + smuggled.len()
        ),
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        // Two lengths, a signed one, a list of them.
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{smuggled}",
            smuggled.len()
        ),
        format!("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n{smuggled}"),
        format!("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 0, {}\r\n\r\n{smuggled}", smuggled.len()),
        // Codings that some readers overlook.
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        // Bad chunks.
        format!("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n{smuggled}"),
        format!("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n{smuggled}"),
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{smuggled}"
        ),
        // A line within a line.
        format!("POST /c HTTP/1.1\r\nHost: a\r\nX: y\n Content-Length: 4\r\n\r\n{smuggled}"),
    ];
    for shape in &shapes {
        for key in ["", "Idempotency-Key: a\r\n"] {
            let before = service.effects();
            let shape = shape.replacen("Host: a\r\n", &format!("Host: a\r\nConnection: close\r\n{key}"), 1);
            let said = gateway.raw(shape.as_bytes());
            let answers = said.matches("HTTP/1.1 ").count();
            assert!(answers <= 1, "{shape}\n{said}");
            let got: Vec<_> = service.received()[before..].to_vec();
            assert!(got.iter().all(|request| !request.line.contains("smuggled")), "{shape}\n{got:?}");
            assert!(got.len() <= 1, "{shape}\n{got:?}");
            // What passes is framed in one way only.
            for request in got {
                let framings = ["content-length", "transfer-encoding"];
                let framed = framings.iter().filter(|name| request.field(name).is_some()).count();
                assert_eq!(framed, 1, "{shape}\n{request:?}");
            }
        }
    }
}

#[test]
fn invalid_keys_are_refused_before_anything_happens() {
    let (_home, service, gateway) = stage("", &[]);
    for key in ["", " ", "a,b", "\"a", "a\"b", "\"a\";q=1", "\u{e9}", &"k".repeat(300), "a b"] {
        let answer = gateway.charge(key, "{}");
        assert_eq!(answer.problem(), (400, "key-malformed".into()), "{key:?}");
    }
    let several = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    assert_eq!(gateway.post("/charges", &several, "{}").problem(), (400, "key-malformed".into()));
    assert_eq!(service.effects(), 0);
}

#[test]
fn connect_is_refused() {
    let (_home, service, gateway) = stage("", &[]);
    let said = gateway
        .raw(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 405, "{said}");
    assert_eq!(service.effects(), 0);
}

#[test]
fn a_host_in_the_target_overrides_the_host_field() {
    let (_home, service, gateway) = stage("", &[]);
    let ask = "POST http://shop.example/c HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(status(&gateway.raw(ask.as_bytes())), 201);
    let request = &service.received()[0];
    assert_eq!((request.line.as_str(), request.field("host")), ("POST /c HTTP/1.1", Some("shop.example")));
}
