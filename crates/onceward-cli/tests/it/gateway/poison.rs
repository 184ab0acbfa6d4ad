//! A service that sends more, or less, than its answer: no other request gets any of it, and nothing of it is stored
//! as an answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::stage::{Home, Reply, Service};
use crate::process::send;

/// A service that wrongly sends a body with its answers to HEAD, a moment later.
fn answers_head_with_a_body() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || converse(stream.unwrap()));
        }
    });
    (address, connections)
}

fn converse(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut first, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if first.is_empty() {
                first.clone_from(&line);
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON";
        if first.starts_with("HEAD") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", poison.len());
            let _ = stream.write_all(head.as_bytes());
            thread::sleep(Duration::from_micros(400));
            let _ = stream.write_all(poison.as_bytes());
        } else {
            let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ntrue");
        }
    }
}

#[test]
fn what_follows_an_answer_without_a_body_is_no_one_elses_answer() {
    let (service, connections) = answers_head_with_a_body();
    let home = Home::new();
    let gateway = home.start(&format!("http://{service}"));
    for round in 0..100 {
        assert_eq!(send(gateway.address, "HEAD", "/", &[], "").status, 200);
        let victim = gateway.charge(&format!("k{round}"), "{}");
        assert_eq!((victim.status, victim.body.as_str()), (201, "true"));
    }
    assert!(connections.load(Ordering::SeqCst) >= 100, "a connection after HEAD is not used again");
}

#[test]
fn a_route_can_have_a_connection_for_each_request() {
    let (service, connections) = answers_head_with_a_body();
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/charges\"\nupstream_reuse = \"never\"");
    let gateway = home.start(&format!("http://{service}"));
    for round in 0..10 {
        assert_eq!(gateway.charge(&format!("k{round}"), "{}").status, 201);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 10);
}

#[test]
fn guarded_requests_have_connections_of_their_own() {
    let (service, connections) = answers_head_with_a_body();
    let home = Home::new();
    let gateway = home.start_with(&format!("http://{service}"), &[]);
    // One connection to the gateway, so that one thread and its pools serve all.
    let mut socket = BufReader::new(TcpStream::connect(gateway.address).unwrap());
    let mut ask = |text: &str| {
        socket.get_mut().write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"true") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
    };
    for round in 0..5 {
        ask("POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        ask(&format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k{round}\r\nContent-Length: 0\r\n\r\n"
        ));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_passed_on_and_not_replayed() {
    for cut in [
        "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n\r\n{\"charge\":\"ch_1\",\"amo",
        "HTTP/1.0 200 OK\r\n\r\nall",
    ] {
        let service = Service::start(move |_| Reply::Raw(cut.into()));
        let home = Home::new();
        let gateway = home.start(&service.url());
        let first = gateway.charge("a", "{}");
        assert!(first.status < 300, "{first:?}");
        let again = gateway.charge("a", "{}");
        assert_eq!(again.problem(), (409, "response-not-stored".into()));
        assert_eq!(again.json()["original_status"], first.status);
        assert_eq!(service.effects(), 1);
    }
}

#[test]
fn an_answer_that_breaks_off_is_an_unknown_outcome() {
    for cut in [
        "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"charge\":",
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"cha",
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: gzip\r\n\r\n{\"charge\":1}",
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
        let service = Service::start(move |_| Reply::Raw(cut.into()));
        let home = Home::new();
        let gateway = home.start(&service.url());
        gateway.charge("a", "{}");
        assert_eq!(gateway.charge("a", "{}").problem(), (409, "outcome-unknown".into()), "{cut}");
        assert_eq!(service.effects(), 1);
    }
}

#[test]
fn a_service_cannot_pretend_to_be_the_gateway() {
    let answer = "HTTP/1.1 201 Created\r\nIdempotent-Replayed: true\r\nIdempotency-Expires: never\r\n\
                  Onceward-Unguarded: x\r\nOnceward-Status: 500\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\n{}";
    let service = Service::start(move |_| Reply::Raw(answer.into()));
    let home = Home::new();
    let gateway = home.start(&service.url());
    let first = gateway.charge("a", "{}");
    assert_eq!((first.status, first.field("x-kept")), (201, Some("1")));
    for name in ["idempotent-replayed", "onceward-unguarded", "onceward-status"] {
        assert_eq!(first.field(name), None, "{name}");
    }
    assert_ne!(first.field("idempotency-expires"), Some("never"));
    let again = gateway.charge("a", "{}");
    assert_eq!((again.field("idempotent-replayed"), again.field("onceward-status")), (Some("true"), None));
    // Nor without a key.
    let unguarded = gateway.post("/charges", &[], "{}");
    assert_eq!((unguarded.status, unguarded.field("x-kept")), (201, Some("1")));
    for name in ["idempotent-replayed", "onceward-unguarded", "onceward-status", "idempotency-expires"] {
        assert_eq!(unguarded.field(name), None, "{name}");
    }
}
