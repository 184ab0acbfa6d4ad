//! Two hundred copies of one request at the same moment, round after round, over HTTP/1.1 and HTTP/2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::stage::{Gateway, Home, Reply, Service};

const COPIES: usize = 200;
/// HTTP/2 connections that the copies are spread over.
const CONNECTIONS: usize = 4;

fn rounds() -> usize {
    super::stage::rounds(5, 100)
}

/// A service that is slow enough for duplicates to overlap.
fn service() -> Service {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Service::start(move |_| {
        thread::sleep(Duration::from_millis(5));
        Reply::created(format!("{{\"charge\":{}}}", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)))
    })
}

/// Checks that a round had one effect and one answer. A duplicate may be refused as in progress instead.
fn check(round: usize, answers: &[(u16, String)], service: &Service) {
    assert_eq!(answers.len(), COPIES);
    assert_eq!(service.effects(), round + 1, "round {round}");
    let first = answers.iter().find(|(status, _)| *status == 201).expect("somebody was answered");
    for answer in answers {
        let told_to_wait = answer.0 == 409 && answer.1.contains("in-progress");
        assert!(answer == first || told_to_wait, "round {round}: {answer:?} and {first:?}");
    }
}

#[test]
fn over_http_1_there_is_one_effect_a_round() {
    let (home, service) = (Home::new(), service());
    let gateway = home.start(&service.url());
    for round in 0..rounds() {
        let answers = at_once(&gateway, round);
        check(round, &answers, &service);
    }
}

fn at_once(gateway: &Gateway, round: usize) -> Vec<(u16, String)> {
    let barrier = Barrier::new(COPIES);
    let head = format!(
        "POST /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: r{round}\r\nContent-Length: 2\r\n\r\n{{"
    );
    thread::scope(|scope| {
        let copies: Vec<_> = (0..COPIES)
            .map(|_| {
                scope.spawn(|| {
                    let mut socket = TcpStream::connect(gateway.address).unwrap();
                    socket.set_nodelay(true).unwrap();
                    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    socket.write_all(head.as_bytes()).unwrap();
                    // All but the last byte is sent; now all last bytes are sent together.
                    barrier.wait();
                    socket.write_all(b"}").unwrap();
                    let mut said = String::new();
                    socket.read_to_string(&mut said).unwrap();
                    let (head, body) = said.split_once("\r\n\r\n").unwrap();
                    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
                })
            })
            .collect();
        copies.into_iter().map(|copy| copy.join().unwrap()).collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_2_there_is_one_effect_a_round() {
    let (home, service) = (Home::new(), service());
    let gateway = home.start(&service.url());
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        let (sender, connection) =
            http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        senders.push(sender);
    }
    for round in 0..rounds() {
        let copies: Vec<_> = (0..COPIES)
            .map(|copy| {
                let mut sender = senders[copy % CONNECTIONS].clone();
                let request = Request::post(format!("http://{}/charges", gateway.address))
                    .header("idempotency-key", format!("r{round}"))
                    .body(Full::new(Bytes::from_static(b"{}")))
                    .unwrap();
                tokio::spawn(async move {
                    let response = sender.send_request(request).await.unwrap();
                    let status: StatusCode = response.status();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    (status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
                })
            })
            .collect();
        let mut answers = Vec::new();
        for copy in copies {
            answers.push(copy.await.unwrap());
        }
        check(round, &answers, &service);
    }
}
