//! A gateway that is stopped finishes the requests in flight.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Home, Reply, Service};
use crate::process::{eventually, send};

/// A service that delays every answer until it is released.
pub fn gated() -> (Service, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let service = Service::start(move |_| {
        let _ = gate.lock().unwrap().recv();
        Reply::created("{}")
    });
    (service, go)
}

#[test]
fn requests_in_flight_are_answered_before_it_ends() {
    let (service, go) = gated();
    let home = Home::new();
    let mut gateway = home.start(&service.url());
    thread::scope(|scope| {
        let address = gateway.address;
        let running = scope.spawn(move || {
            let fields =
                [("Idempotency-Key", "a"), ("Host", "pay.example"), ("Content-Type", "application/json")];
            send(address, "POST", "/charges", &fields, "{}")
        });
        eventually("it is running", || (service.effects() == 1).then_some(()));
        gateway.signal("-TERM");
        eventually("nobody new is let in", || TcpStream::connect(address).is_err().then_some(()));
        assert_eq!(send(gateway.admin, "GET", "/readyz", &[], "").status, 503);
        go.send(()).unwrap();
        assert_eq!(running.join().unwrap().status, 201);
    });
    assert!(gateway.child.wait().unwrap().success());
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("a", "{}").field("idempotent-replayed"), Some("true"));
}

#[test]
fn a_client_that_disconnects_cancels_nothing_even_during_shutdown() {
    let (service, go) = gated();
    let home = Home::new();
    let mut gateway = home.start(&service.url());
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let ask = "POST /charges HTTP/1.1\r\nHost: pay.example\r\nIdempotency-Key: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    socket.write_all(ask.as_bytes()).unwrap();
    eventually("it is running", || (service.effects() == 1).then_some(()));
    drop(socket);
    gateway.signal("-TERM");
    eventually("nobody new is let in", || TcpStream::connect(gateway.address).is_err().then_some(()));
    go.send(()).unwrap();
    assert!(gateway.child.wait().unwrap().success());
    let gateway = home.start(&service.url());
    let answer = gateway.charge("a", "{}");
    assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, Some("true")));
    assert_eq!(service.effects(), 1);
}

#[test]
fn after_sigterm_it_is_not_ready_and_still_listens_for_a_while() {
    let service = Service::charging();
    let home = Home::new();
    let mut gateway = home.start_with(&service.url(), &["--drain-delay", "2s"]);
    let began = Instant::now();
    gateway.signal("-TERM");
    eventually("it is not ready", || {
        (send(gateway.admin, "GET", "/readyz", &[], "").status == 503).then_some(())
    });
    assert_eq!(gateway.charge("late", "{}").status, 201, "a balancer that has not noticed yet is served");
    eventually("nobody new is let in", || TcpStream::connect(gateway.address).is_err().then_some(()));
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(gateway.child.wait().unwrap().success());
}

#[test]
fn sigint_does_not_wait_for_balancers() {
    let service = Service::charging();
    let home = Home::new();
    let mut gateway = home.start_with(&service.url(), &["--drain-delay", "10m"]);
    gateway.signal("-INT");
    assert!(gateway.child.wait().unwrap().success());
}
