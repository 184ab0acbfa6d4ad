//! A gateway that is stopped finishes the requests in flight.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{eventually, onceward, send};
use crate::servers::Postgres;

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

/// Runs a gateway whose store goes away while the service works, and stops it. Returns what it logged.
fn stop_with_an_unwritten_outcome(
    server: &mut Postgres,
    home: &Home,
    database: &str,
    drain_timeout: &str,
    after_the_signal: impl FnOnce(&mut Postgres),
) -> (String, Service) {
    let (service, go) = gated();
    let log = home.folder.path().join("log");
    home.write_config("[defaults]\nrecord_wait = \"100ms\"");
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", database]);
    command.env("ONCEWARD_SECRET", SECRET).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.arg("--config").arg(home.config());
    command.args(["--drain-delay", "0s", "--drain-timeout", drain_timeout]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut gateway = Gateway::spawn(command);
    thread::scope(|scope| {
        let first = scope.spawn(|| gateway.charge("a-key-of-a-client", "{}"));
        eventually("it is running", || (service.effects() == 1).then_some(()));
        server.kill();
        go.send(()).unwrap();
        let answer = first.join().unwrap();
        assert_eq!((answer.status, answer.field("onceward-recorded")), (201, Some("not-yet")));
        assert_eq!(answer.field("idempotency-expires"), None, "nothing is promised");
    });
    gateway.signal("-TERM");
    after_the_signal(server);
    assert!(gateway.child.wait().unwrap().success());
    (std::fs::read_to_string(log).unwrap(), service)
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn outcomes_that_a_store_did_not_take_are_listed_at_the_end() {
    let Some(mut server) = Postgres::start() else { return };
    let (home, database) = (Home::new(), server.database("receipts"));
    let (log, service) = stop_with_an_unwritten_outcome(&mut server, &home, &database, "500ms", |_| {});
    let line = log
        .lines()
        .find(|line| line.contains("has not taken the outcome"))
        .unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("POST /charges") && line.contains("key="), "{line}");
    assert!(!line.contains("a-key-of-a-client"), "{line}");
    let count = log.lines().find(|line| line.contains("outcomes were not written"));
    assert!(count.is_some_and(|line| line.contains("count=1")), "{log}");
    server.up();
    let variables = [("ONCEWARD_SECRET", SECRET)];
    let gateway = Gateway::start_on(&database, &service.url(), &home.config(), &[], &variables);
    let retried = eventually("the lease has ended", || {
        let answer = gateway.charge("a-key-of-a-client", "{}");
        (answer.problem().1 == "outcome-unknown").then_some(answer)
    });
    assert_eq!((retried.status, service.effects()), (409, 1));
}

#[test]
fn an_outcome_is_written_if_the_store_comes_back_before_the_end() {
    let Some(mut server) = Postgres::start() else { return };
    let (home, database) = (Home::new(), server.database("receipts"));
    let (log, service) = stop_with_an_unwritten_outcome(&mut server, &home, &database, "60s", Postgres::up);
    assert!(!log.contains("has not taken the outcome"), "{log}");
    let variables = [("ONCEWARD_SECRET", SECRET)];
    let gateway = Gateway::start_on(&database, &service.url(), &home.config(), &[], &variables);
    let retried = gateway.charge("a-key-of-a-client", "{}");
    assert_eq!((retried.status, retried.field("idempotent-replayed")), (201, Some("true")));
    assert_eq!(service.effects(), 1);
}
