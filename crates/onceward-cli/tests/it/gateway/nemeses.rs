//! Accidents of processes and stores, on the real binary. Short by default; `ONCEWARD_LONG=1` plays the
//! numbers that the documentation states.

use std::thread;
use std::time::Duration;

use super::stage::{Gateway, Home, Service, rounds};
use crate::process::{eventually, send};
use crate::servers::Postgres;

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

#[test]
fn a_store_that_is_gone_for_longer_than_the_lease_loses_no_answer() {
    let Some(mut server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (service, go) = gated();
    let home = Home::new();
    home.write_config("[defaults]\nlease = \"500ms\"");
    let gateway = Gateway::start_on(&database, &service.url(), &home.config(), &[], &[SECRET]);
    for round in 0..rounds(1, 10) {
        let key = format!("k{round}");
        thread::scope(|scope| {
            let first = scope.spawn(|| gateway.charge(&key, "{}"));
            eventually("it is running", || (service.effects() == round + 1).then_some(()));
            server.kill();
            go.send(()).unwrap();
            // Several leases.
            thread::sleep(Duration::from_millis(1500));
            assert_eq!(send(gateway.admin, "GET", "/readyz", &[], "").status, 503);
            server.up();
            assert!(matches!(first.join().unwrap().status, 201 | 409), "the service has answered");
        });
        let again = eventually("the answer is recorded", || {
            let answer = gateway.charge(&key, "{}");
            (answer.status == 201).then_some(answer)
        });
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        assert_eq!(service.effects(), round + 1);
    }
}
