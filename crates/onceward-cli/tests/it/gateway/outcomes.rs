//! What the answers of a service mean for a key, row by row of the contract, with all defaults.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{Answer, eventually, onceward};

/// A service that has its effect, and then gives this reply.
fn behind(reply: impl Fn() -> Reply + Send + Sync + 'static) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::start(move |_| reply()));
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

fn raw(head: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n").into_bytes())
}

fn is_replay(answer: &Answer) -> bool {
    answer.field("idempotent-replayed") == Some("true")
}

/// The service charges and then fails in every way in which services fail. Our own client, which retries, makes one
/// charge of it.
#[test]
fn a_client_that_retries_through_the_gateway_has_one_effect() {
    for answer in [
        "408 Request Timeout",
        "500 Internal Server Error",
        "501 Not Implemented",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "503 Service Unavailable\r\nRetry-After: 0",
        "504 Gateway Timeout",
        "524 A Timeout Occurred",
    ] {
        let (_home, service, gateway) = behind(move || raw(answer));
        let url = format!("http://{}/charges", gateway.address);
        let sent = onceward(&["send", "--url", &url, "--body", "{\"amount\":12}"]).output().unwrap();
        assert_eq!(service.effects(), 1, "{answer}: {}", String::from_utf8_lossy(&sent.stderr));
        assert!(!sent.status.success(), "{answer}");
    }
}

#[test]
fn every_status_is_kept_frees_the_key_or_is_unknown() {
    let replayed = [200, 202, 207, 303, 400, 404, 409, 500, 501, 507].map(|status| (status, status, 1));
    let free = [401, 403, 407, 412, 421, 423, 425, 426, 428, 429].map(|status| (status, status, 2));
    let unknown = [408, 502, 503, 504, 520, 599].map(|status| (status, 409, 1));
    let home = Home::new();
    let service = Service::start(|request| {
        let status = request.line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        Reply::Answer(status, "{}".into())
    });
    let gateway = home.start(&service.url());
    for (status, again, effects) in replayed.into_iter().chain(free).chain(unknown) {
        let before = service.effects();
        let send = || gateway.post(&format!("/{status}"), &[("Idempotency-Key", "k")], "{}");
        let (first, second) = (send(), send());
        assert_eq!((first.status, second.status), (status, again), "{status}");
        assert_eq!(service.effects() - before, effects, "{status}");
        assert_eq!(is_replay(&second), effects == 1 && status == again, "{status}");
    }
}

#[test]
fn a_conflict_that_says_when_to_come_back_frees_the_key() {
    let (_home, service, gateway) = behind(|| raw("409 Conflict\r\nRetry-After: 1"));
    for effects in 1..=2 {
        assert_eq!(gateway.charge("k", "{}").status, 409);
        assert_eq!(service.effects(), effects);
    }
}

/// Whether the outcome of the key is still unknown: on a route that holds, an unknown one is refused and a free one runs.
fn is_unknown_to_a_route_that_holds(home: &Home, service: &str) -> bool {
    home.write_config("");
    let answer = home.start(service).charge("k", "{}");
    answer.is_problem("outcome-unknown")
}

const TAKES_OVER: &str = "[[route]]\npath = \"/charges\"\non_unknown = \"retry\"\n";

/// A try that takes over from an unknown outcome and is turned away proves nothing about the first one.
#[test]
fn a_refusal_after_a_takeover_leaves_the_outcome_unknown() {
    for refusal in ["429 Too Many Requests", "401 Unauthorized", "409 Conflict\r\nRetry-After: 0"] {
        for first_is_lost in [true, false] {
            let count = AtomicUsize::new(0);
            let home = Home::new();
            let service = Service::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
                0 if first_is_lost => Reply::Raw(Vec::new()),
                _ => raw(refusal),
            });
            home.write_config(TAKES_OVER);
            let gateway = home.start(&service.url());
            if first_is_lost {
                assert_eq!(gateway.charge("k", "{}").status, 504);
            }
            let effects = service.effects();
            let turned_away = gateway.charge("k", "{}");
            assert!(refusal.starts_with(&turned_away.status.to_string()), "{refusal}: {turned_away:?}");
            assert_eq!(service.effects(), effects + 1);
            gateway.kill();
            let unknown = is_unknown_to_a_route_that_holds(&home, &service.url());
            assert_eq!(unknown, first_is_lost, "{refusal}");
        }
    }
}

/// Where nothing was sent, it stays unknown too.
#[test]
fn a_takeover_that_sends_nothing_leaves_the_outcome_unknown() {
    let (home, service) = (Home::new(), Service::start(|_| Reply::Raw(Vec::new())));
    home.write_config(TAKES_OVER);
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("k", "{}").status, 504);
    // From now on every connection is refused.
    let (address, url) = (service.address, service.url());
    drop(service);
    eventually("the service is gone", || TcpStream::connect(address).is_err().then_some(()));
    assert_eq!(gateway.charge("k", "{}").problem(), (502, "upstream-unreachable".into()));
    gateway.kill();
    assert!(is_unknown_to_a_route_that_holds(&home, &url));
}

/// A refreshed token revives its key.
#[test]
fn a_refusal_of_a_credential_is_not_kept() {
    let home = Home::new();
    let service = Service::start(|request| match request.field("authorization") {
        Some("Bearer fresh") => Reply::created("{}"),
        _ => Reply::Answer(401, "{}".into()),
    });
    home.write_config("[defaults]\nscope = \"header:X-Account\"");
    let gateway = home.start(&service.url());
    let send = |token: &str| {
        let fields = [("Idempotency-Key", "k"), ("X-Account", "7"), ("Authorization", token)];
        gateway.post("/charges", &fields, "{}")
    };
    assert_eq!(send("Bearer stale").status, 401);
    assert_eq!(send("Bearer fresh").status, 201);
    assert!(is_replay(&send("Bearer fresh")));
}

/// Without a length or chunks, a body that was cut off looks like a whole one.
#[test]
fn a_body_that_ends_with_its_connection_is_not_replayed() {
    for (head, status) in [("HTTP/1.1 201 Created", 201), ("HTTP/1.0 200 OK", 200)] {
        let answer = format!("{head}\r\nContent-Type: application/json\r\n\r\n{{\"charge\":\"ch_1\",\"amo");
        let (_home, service, gateway) = behind(move || Reply::Raw(answer.clone().into_bytes()));
        assert_eq!(gateway.charge("k", "{}").status, status);
        let again = gateway.charge("k", "{}");
        assert_eq!(again.problem(), (409, "response-not-stored".into()));
        assert_eq!(again.json()["original_status"], status);
        assert_eq!(service.effects(), 1);
    }
    // What has no body has nothing that could be cut off.
    let (_home, _service, gateway) = behind(|| Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()));
    assert_eq!(gateway.charge("k", "{}").status, 204);
    assert!(is_replay(&gateway.charge("k", "{}")));
}

/// What only a gateway may say of an answer.
#[test]
fn fields_of_the_protocol_that_a_service_sends_are_not_passed_on() {
    let (_home, _service, gateway) = behind(|| {
        raw(
            "201 Created\r\nIdempotent-Replayed: true\r\nOnceward-Status: 200\r\nOnceward-Recorded: not-yet\r\n\
             Idempotency-Expires: Thu, 01 Jan 2099 00:00:00 GMT\r\nX-Own: 1",
        )
    });
    let first = gateway.charge("k", "{}");
    assert_eq!((first.field("idempotent-replayed"), first.field("onceward-status")), (None, None));
    assert_eq!((first.field("onceward-recorded"), first.field("x-own")), (None, Some("1")));
    assert!(!first.field("idempotency-expires").unwrap().contains("2099"), "{first:?}");
    let again = gateway.charge("k", "{}");
    assert_eq!((is_replay(&again), again.field("onceward-status")), (true, None));
}

/// Two gateways in a row, both with all defaults: what the second one refuses did not happen.
#[test]
fn another_gateway_behind_says_more_than_its_status() {
    let (inner_home, service) = (Home::new(), Service::start(|_| Reply::Stall(Vec::new())));
    let inner =
        inner_home.start_with(&service.url(), &["--in-flight-max", "1", "--in-flight-per-address-max", "2"]);
    let mut running = TcpStream::connect(inner.address).unwrap();
    let ask = b"POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: running\r\nContent-Length: 0\r\n\r\n";
    running.write_all(ask).unwrap();
    eventually("it is running", || (service.effects() == 1).then_some(()));
    let outer_home = Home::new();
    let outer = outer_home.start(&format!("http://{}", inner.address));
    for _ in 0..2 {
        assert_eq!(outer.charge("k", "{}").problem(), (503, "overloaded".into()));
    }
    assert_eq!(service.effects(), 1);

    let (inner_home, lost) = (Home::new(), Service::start(|_| Reply::Raw(Vec::new())));
    let inner = inner_home.start(&lost.url());
    let outer_home = Home::new();
    let outer = outer_home.start(&format!("http://{}", inner.address));
    assert_eq!(outer.charge("k", "{}").problem(), (504, "upstream-timeout".into()));
    assert_eq!(outer.charge("k", "{}").problem(), (409, "outcome-unknown".into()));
    assert_eq!(lost.effects(), 1);
}
