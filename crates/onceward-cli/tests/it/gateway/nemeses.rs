//! Accidents of processes and stores, on the real binary. Short by default; `ONCEWARD_LONG=1` plays the
//! numbers that the documentation states.

use std::collections::HashSet;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Received, Reply, Service, rounds};
use crate::process::{eventually, send};
use crate::servers::Postgres;

/// A service that answers when it is told to.
fn gated() -> (Service, mpsc::Sender<()>) {
    super::stop::gated()
}

#[test]
fn a_gateway_that_is_stopped_for_longer_than_the_lease_records_the_answer() {
    let (service, go) = gated();
    let home = Home::new();
    home.write_config("[defaults]\nlease = \"300ms\"");
    let gateway = home.start(&service.url());
    for round in 0..rounds(1, 20) {
        let key = format!("k{round}");
        thread::scope(|scope| {
            let first = scope.spawn(|| gateway.charge(&key, "{}"));
            eventually("it is running", || (service.effects() == round + 1).then_some(()));
            gateway.signal("-STOP");
            go.send(()).unwrap();
            // Several leases.
            thread::sleep(Duration::from_millis(1500));
            gateway.signal("-CONT");
            assert_eq!(first.join().unwrap().status, 201);
        });
        let again = gateway.charge(&key, "{}");
        assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("true")));
        assert_eq!(service.effects(), round + 1);
    }
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
    for round in 0..rounds(1, 20) {
        let key = format!("k{round}");
        thread::scope(|scope| {
            let first = scope.spawn(|| one.charge(&key, "{}"));
            eventually("it is running", || (service.effects() == round + 1).then_some(()));
            one.signal("-STOP");
            let told = eventually("the lease has ended", || {
                let answer = two.charge(&key, "{}");
                (answer.problem().1 == "outcome-unknown").then_some(answer)
            });
            assert_eq!(told.status, 409);
            go.send(()).unwrap();
            one.signal("-CONT");
            assert_eq!(first.join().unwrap().status, 201);
        });
        let again = eventually("the owner's answer is recorded", || {
            let answer = two.charge(&key, "{}");
            (answer.status == 201).then_some(answer)
        });
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        assert_eq!(service.effects(), round + 1);
    }
}

/// A service that answers the first request of each path and key when it is told to, and others at once.
fn gated_at_first() -> (Service, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let (gate, seen) = (Mutex::new(gate), Mutex::new(HashSet::new()));
    let service = Service::start(move |request| {
        if seen.lock().unwrap().insert((request.line.clone(), request.key().to_owned())) {
            let _ = gate.lock().unwrap().recv();
        }
        Reply::created("{}")
    });
    (service, go)
}

/// Under hold the client gets the answer, without a promise to keep it. Under retry another gateway may run it once the lease
/// has ended, so that the answer is withheld, and the next try may run again.
#[test]
fn a_store_that_is_gone_for_longer_than_the_lease_loses_no_answer() {
    let Some(mut server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (service, go) = gated_at_first();
    let home = Home::new();
    home.write_config(
        "[defaults]\nlease = \"500ms\"\nrecord_wait = \"200ms\"\n\
         [[route]]\npath = \"/again\"\non_unknown = \"retry\"",
    );
    let gateway = Gateway::start_on(&database, &service.url(), &home.config(), &[], &[SECRET]);
    let send_key = |path: &str, key: &str| gateway.post(path, &[("Idempotency-Key", key)], "{}");
    for round in 0..rounds(1, 10) {
        let key = format!("k{round}");
        thread::scope(|scope| {
            let holds = scope.spawn(|| send_key("/charges", &key));
            let retries = scope.spawn(|| send_key("/again", &key));
            eventually("both are running", || {
                (sent(&service, "/charges", &key) + sent(&service, "/again", &key) == 2).then_some(())
            });
            server.kill();
            let killed = Instant::now();
            go.send(()).unwrap();
            go.send(()).unwrap();
            let answer = holds.join().unwrap();
            assert_eq!(
                (answer.status, answer.field("onceward-recorded")),
                (201, Some("not-yet")),
                "{answer:?}"
            );
            assert_eq!(answer.field("idempotency-expires"), None, "nothing is promised: {answer:?}");
            let withheld = retries.join().unwrap();
            assert_eq!(withheld.problem(), (409, "outcome-unknown".into()), "{withheld:?}");
            assert!(withheld.field("retry-after").is_some(), "{withheld:?}");
            // Several leases.
            thread::sleep(Duration::from_millis(1500).saturating_sub(killed.elapsed()));
            assert_eq!(send(gateway.admin, "GET", "/readyz", &[], "").status, 503);
            server.up();
        });
        let recorded = |path| {
            eventually("the answer is recorded", || {
                Some(send_key(path, &key)).filter(|answer| answer.status == 201)
            })
        };
        assert_eq!(recorded("/charges").field("idempotent-replayed"), Some("true"));
        assert_eq!(sent(&service, "/charges", &key), 1);
        recorded("/again");
        assert_eq!(recorded("/again").field("idempotent-replayed"), Some("true"));
        assert!(sent(&service, "/again", &key) <= 2);
    }
}

fn sent(service: &Service, path: &str, key: &str) -> usize {
    let begin = format!("POST {path} ");
    let is_it = |request: &&Received| request.line.starts_with(&begin) && request.key() == key;
    service.received().iter().filter(is_it).count()
}
