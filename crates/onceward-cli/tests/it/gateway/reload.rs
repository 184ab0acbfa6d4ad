//! Reloading routes without a restart.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::stage::{Home, Reply, Service};
use crate::process::eventually;

const REQUIRED: &str = "[defaults]\nkey = \"required\"";

#[test]
fn a_changed_file_changes_the_routes() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("");
    let gateway = home.start(&service.url());
    assert_eq!(gateway.post("/charges", &[], "{}").status, 201);
    home.write_config(REQUIRED);
    eventually("the new routes are in effect", || {
        (gateway.post("/charges", &[], "{}").status == 400).then_some(())
    });
}

#[test]
fn a_signal_changes_the_routes_at_once_and_a_mistake_changes_nothing() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(REQUIRED);
    let gateway = home.start(&service.url());
    home.write_config("[defaults]\nkey = \"requierd\"");
    gateway.signal("-HUP");
    // Long enough for several checks of the file.
    for _ in 0..15 {
        assert_eq!(gateway.post("/charges", &[], "{}").status, 400);
        thread::sleep(Duration::from_millis(100));
    }
    home.write_config("[defaults]\nkey = \"optional\"");
    gateway.signal("-HUP");
    eventually("the corrected routes are in effect", || {
        (gateway.post("/charges", &[], "{}").status == 201).then_some(())
    });
}

#[test]
fn a_request_under_way_ends_under_the_routes_it_began_with() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let service = Service::start(move |request| {
        if request.key() == "slow" {
            gate.lock().unwrap().recv().unwrap();
        }
        Reply::created("{}")
    });
    let home = Home::new();
    home.write_config("");
    let gateway = home.start(&service.url());
    thread::scope(|scope| {
        let slow = scope.spawn(|| gateway.charge("slow", "{}"));
        eventually("the slow one is running", || (service.effects() == 1).then_some(()));
        home.write_config(REQUIRED);
        eventually("the new routes are in effect", || {
            (gateway.post("/charges", &[], "{}").status == 400).then_some(())
        });
        go.send(()).unwrap();
        assert_eq!(slow.join().unwrap().status, 201);
    });
    assert_eq!(gateway.charge("slow", "{}").field("idempotent-replayed"), Some("true"));
}

/// The terms that name an intent are edited while the gateway runs: a retry must still find its receipt.
#[test]
fn a_change_of_scope_or_operation_runs_nothing_again() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("");
    let gateway = home.start(&service.url());
    let send = |key: &str| {
        let fields = [("Idempotency-Key", key), ("Authorization", "Bearer one"), ("X-Tenant", "acme")];
        gateway.post("/charges", &fields, "{}")
    };
    assert_eq!(send("k0").status, 201);
    for (number, config) in [
        "[defaults]\nscope = \"header:X-Tenant\"",
        "[[route]]\npath = \"/charges\"\nscope = \"header:X-Tenant\"\noperation = \"charge\"",
        "[defaults]\nscope = \"shared\"",
    ]
    .into_iter()
    .enumerate()
    {
        // The new terms are in effect once a request that only they refuse is refused, or the table says so.
        let marker = format!("{config}\n[[route]]\npath = \"/marker{number}\"\nkey = \"required\"\n");
        home.write_config(&marker);
        gateway.signal("-HUP");
        eventually("the routes are reloaded", || {
            (gateway.post(&format!("/marker{number}"), &[], "{}").status == 400).then_some(())
        });
        let before = service.effects();
        for key in 0..=number {
            let answer = send(&format!("k{key}"));
            assert_eq!(answer.field("idempotent-replayed"), Some("true"), "{config}: k{key}: {answer:?}");
        }
        assert_eq!(service.effects(), before);
        let new = format!("k{}", number + 1);
        assert_eq!(send(&new).field("idempotent-replayed"), None);
        assert_eq!(send(&new).field("idempotent-replayed"), Some("true"));
    }
}
