//! Attacks and accidents beside honest traffic, on the real binary. Short by default; `ONCEWARD_LONG=1` plays the
//! numbers that the documentation states.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{eventually, send};
use crate::servers::Postgres;

fn long() -> bool {
    std::env::var_os("ONCEWARD_LONG").is_some()
}

/// Attackers have two addresses, and honest clients another one.
fn connect_as_attacker(to: SocketAddr, number: usize) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = if number.is_multiple_of(2) { [127, 0, 0, 66] } else { [127, 0, 0, 67] };
    socket.bind(&SocketAddr::from((IpAddr::from(from), 0)).into()).unwrap();
    socket.connect(&to.into()).ok()?;
    Some(socket.into())
}

/// Attackers of three kinds, which connect again when they were closed. Returns when all are connected.
fn attack<'scope>(scope: &'scope thread::Scope<'scope, '_>, gateway: SocketAddr, over: &'scope AtomicBool) {
    let (idle, slow_bodies, slow_readers) = if long() { (10_000, 300, 100) } else { (400, 30, 10) };
    let slow_body = {
        let head = "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: slow\r\nContent-Length: 262144\r\n\r\n";
        [head.as_bytes(), &vec![b'x'; 100_000]].concat()
    };
    let kinds = [
        (idle, Vec::new()),
        (slow_bodies, slow_body),
        (slow_readers, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
    ];
    for (count, bytes) in kinds {
        let connect = move |number| {
            let mut socket = connect_as_attacker(gateway, number)?;
            socket.set_nonblocking(true).unwrap();
            let _ = socket.write(&bytes);
            Some(socket)
        };
        let mut sockets: Vec<Option<TcpStream>> = (0..count).map(&connect).collect();
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_secs(1));
                for (number, socket) in sockets.iter_mut().enumerate() {
                    let is_open = socket.as_ref().is_some_and(|socket| {
                        let peeked = socket.peek(&mut [0]);
                        matches!(peeked, Ok(1))
                            || peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                    });
                    if !is_open {
                        *socket = connect(number);
                    }
                }
            }
        });
    }
}

/// Honest requests in this time, on connections that are kept. Each one must be answered.
fn honest_requests(gateway: &Gateway, during: Duration, round: &str) -> u32 {
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for client in 0..4 {
            let done = &done;
            scope.spawn(move || {
                let mut socket = TcpStream::connect(gateway.address).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let began = Instant::now();
                let mut answer = vec![0; 4096];
                for number in 0.. {
                    if began.elapsed() > during {
                        return;
                    }
                    let ask = format!(
                        "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {round}-{client}-{number}\r\nContent-Length: 2\r\n\r\n{{}}"
                    );
                    socket.write_all(ask.as_bytes()).unwrap();
                    let read = socket.read(&mut answer).unwrap();
                    let said = String::from_utf8_lossy(&answer[..read]);
                    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner()
}

#[test]
fn honest_clients_go_on_beside_silent_slow_and_unreading_ones() {
    let service = Service::start(|request| {
        if request.line.contains("/large") {
            Reply::Answer(200, "x".repeat(8 << 20))
        } else {
            Reply::created("{}")
        }
    });
    let home = Home::new();
    let gateway = home.start(&service.url());
    let (rounds, during) = if long() { (5, Duration::from_secs(5)) } else { (1, Duration::from_secs(2)) };
    honest_requests(&gateway, during / 2, "warm");
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let alone = honest_requests(&gateway, during, &format!("alone{round}"));
        let over = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            attack(scope, gateway.address, &over);
            assert!(gateway.metric("onceward_connections") > 200.0, "the attack is under way");
            let beside = honest_requests(&gateway, during, &format!("beside{round}"));
            over.store(true, Ordering::SeqCst);
            beside
        });
        println!("honest requests: {alone} alone, {beside} beside the attack");
        assert!(beside > 0);
        ratios.push(f64::from(beside) / f64::from(alone));
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    // The attackers of this test run on the same cores as the gateway, so only long rounds say something.
    assert!(!long() || median >= 0.9, "{ratios:?}");
}

/// A service that answers when it is told to.
fn gated() -> (Service, std::sync::mpsc::Sender<()>) {
    super::stop::gated()
}

#[test]
fn a_gateway_that_is_stopped_for_longer_than_the_lease_records_the_answer() {
    let (service, go) = gated();
    let home = Home::new();
    home.write_config("[defaults]\nlease = \"300ms\"");
    let gateway = home.start(&service.url());
    thread::scope(|scope| {
        let first = scope.spawn(|| gateway.charge("a", "{}"));
        eventually("it is running", || (service.effects() == 1).then_some(()));
        gateway.signal("-STOP");
        go.send(()).unwrap();
        // Several leases.
        thread::sleep(Duration::from_millis(1500));
        gateway.signal("-CONT");
        assert_eq!(first.join().unwrap().status, 201);
    });
    let again = gateway.charge("a", "{}");
    assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("true")));
    assert_eq!(service.effects(), 1);
}

const SECRET: (&str, &str) = ("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef");

#[test]
fn of_two_gateways_one_that_was_stopped_for_longer_than_the_lease_runs_nothing_twice() {
    let Some(server) = Postgres::start() else { return };
    let (service, go) = gated();
    let home = Home::new();
    home.write_config("[defaults]\nlease = \"500ms\"\nwait_at_most = \"2s\"");
    let database = server.database("receipts");
    let start = || Gateway::start_on(&database, &service.url(), &home.config(), &[], &[SECRET]);
    let (one, two) = (start(), start());
    thread::scope(|scope| {
        let first = scope.spawn(|| one.charge("a", "{}"));
        eventually("it is running", || (service.effects() == 1).then_some(()));
        one.signal("-STOP");
        let told = eventually("the lease has ended", || {
            let answer = two.charge("a", "{}");
            (answer.problem().1 == "outcome-unknown").then_some(answer)
        });
        assert_eq!(told.status, 409);
        go.send(()).unwrap();
        one.signal("-CONT");
        assert_eq!(first.join().unwrap().status, 201);
    });
    let again = eventually("the owner's answer is recorded", || {
        let answer = two.charge("a", "{}");
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 1);
}

#[test]
fn a_store_that_is_gone_for_longer_than_the_lease_loses_no_answer() {
    let Some(mut server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (service, go) = gated();
    let home = Home::new();
    home.write_config("[defaults]\nlease = \"500ms\"");
    let gateway = Gateway::start_on(&database, &service.url(), &home.config(), &[], &[SECRET]);
    thread::scope(|scope| {
        let first = scope.spawn(|| gateway.charge("a", "{}"));
        eventually("it is running", || (service.effects() == 1).then_some(()));
        server.kill();
        go.send(()).unwrap();
        // Several leases.
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(send(gateway.admin, "GET", "/readyz", &[], "").status, 503);
        server.up();
        assert!(matches!(first.join().unwrap().status, 201 | 409), "the service has answered");
    });
    let again = eventually("the answer is recorded", || {
        let answer = gateway.charge("a", "{}");
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 1);
}
