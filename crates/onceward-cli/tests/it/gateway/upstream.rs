//! A service that fails: a request that may have been sent is never sent again, and one that was not sent is never held.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use super::stage::{Home, Reply, Service};
use crate::process::eventually;

#[test]
fn where_nothing_was_sent_the_key_stays_free() {
    // An address without a listener.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = Home::new();
    let gateway = home.start(&format!("http://{address}"));
    for _ in 0..2 {
        let refused = gateway.charge("a", "{}");
        assert_eq!(refused.problem(), (502, "upstream-unreachable".into()));
        assert_eq!(refused.json()["retryable"], true);
    }
    let service = Service::start_at(address, |_| Reply::created("{}"));
    assert_eq!(gateway.charge("a", "{}").status, 201);
    assert_eq!(service.effects(), 1);
}

/// A service that reads a request and gives this reply instead of an answer: the effect may have happened.
fn no_answer(reply: impl Fn() -> Reply + Send + Sync + 'static) {
    let service = Service::start(move |_| reply());
    let home = Home::new();
    home.write_config("[defaults]\nanswer_timeout = \"1s\"");
    let gateway = home.start(&service.url());
    let first = gateway.charge("a", "{}");
    assert_eq!(first.problem(), (504, "upstream-timeout".into()));
    for _ in 0..2 {
        assert_eq!(gateway.charge("a", "{}").problem(), (409, "outcome-unknown".into()));
    }
    assert_eq!(service.effects(), 1);
    assert!(gateway.metric("onceward_unknowns_total") >= 1.0);
}

#[test]
fn a_service_that_never_answers_leaves_an_unknown_outcome() {
    no_answer(|| Reply::Stall(Vec::new()));
}

#[test]
fn a_service_that_disconnects_leaves_an_unknown_outcome() {
    no_answer(|| Reply::Raw(Vec::new()));
}

#[test]
fn an_invalid_response_leaves_an_unknown_outcome() {
    no_answer(|| Reply::Raw(b"220 smtp.example ESMTP\r\n".to_vec()));
}

#[test]
fn half_a_head_leaves_an_unknown_outcome() {
    no_answer(|| Reply::Raw(b"HTTP/1.1 201 Created\r\nContent-Le".to_vec()));
}

#[test]
fn a_head_without_end_leaves_an_unknown_outcome() {
    no_answer(|| Reply::Raw(format!("HTTP/1.1 201 Created\r\nX: {}", "y".repeat(200_000)).into_bytes()));
}

/// A service whose answer breaks off within its body.
fn broken_off(reply: impl Fn() -> Reply + Send + Sync + 'static) {
    let service = Service::start(move |_| reply());
    let home = Home::new();
    home.write_config("[defaults]\nanswer_timeout = \"1s\"");
    let gateway = home.start(&service.url());
    let first = gateway.charge("a", "{}");
    assert_eq!(first.problem().0 / 100, 4, "{first:?}");
    assert_eq!(gateway.charge("a", "{}").problem(), (409, "outcome-unknown".into()));
    assert_eq!(service.effects(), 1);
}

#[test]
fn a_body_that_breaks_off_leaves_an_unknown_outcome() {
    broken_off(|| Reply::Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n123".to_vec()));
}

#[test]
fn a_body_that_stalls_leaves_an_unknown_outcome() {
    broken_off(|| Reply::Stall(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n123".to_vec()));
}

#[test]
fn chunks_that_make_no_sense_leave_an_unknown_outcome() {
    broken_off(|| Reply::Raw(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n1".to_vec()));
}

#[test]
fn where_the_route_says_retry_no_answer_is_tried_again_with_a_higher_fence() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let service = Service::start(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Reply::Raw(Vec::new()),
        _ => Reply::created("{}"),
    });
    let home = Home::new();
    home.write_config("[defaults]\non_unknown = \"retry\"");
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("a", "{}").problem(), (504, "upstream-timeout".into()));
    assert_eq!(gateway.charge("a", "{}").status, 201);
    let fences: Vec<u64> = service
        .received()
        .iter()
        .map(|request| request.field("onceward-fence").unwrap().parse().unwrap())
        .collect();
    assert!(fences[0] < fences[1], "{fences:?}");
}

#[test]
fn a_route_can_override_outcomes() {
    let service = Service::start(|request| {
        if request.line.contains("/fails") {
            Reply::Answer(500, "no".into())
        } else {
            Reply::Answer(409, "later".into())
        }
    });
    let home = Home::new();
    home.write_config("[defaults]\noutcomes = { 5xx = \"replay\", 409 = \"retry\" }");
    let gateway = home.start(&service.url());
    for _ in 0..2 {
        let answer = gateway.post("/fails", &[("Idempotency-Key", "a")], "");
        assert_eq!((answer.status, answer.body.as_str()), (500, "no"));
    }
    assert_eq!(service.effects(), 1);
    for _ in 0..2 {
        assert_eq!(gateway.charge("a", "{}").status, 409);
    }
    assert_eq!(service.effects(), 3);
}

#[test]
fn a_service_that_closes_after_every_answer_gets_nothing_twice() {
    let service =
        Service::start(|_| Reply::Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok".to_vec()));
    let home = Home::new();
    let gateway = home.start(&service.url());
    for count in 0..50 {
        let answer = gateway.charge(&format!("k{count}"), "{}");
        // If the connection closes while a request is being sent, the outcome is unknown, and the answer is 504.
        assert!(matches!(answer.status, 201 | 504), "{answer:?}");
    }
    let mut keys: Vec<_> = service.received().iter().map(|request| request.key().to_owned()).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "a key was sent twice");
}

#[test]
fn duplicates_wait_for_the_first_or_are_refused() {
    let service = Service::start(|_| {
        thread::sleep(Duration::from_millis(300));
        Reply::created("{}")
    });
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/hasty\"\non_duplicate = \"conflict\"");
    let gateway = home.start(&service.url());
    thread::scope(|scope| {
        let copies: Vec<_> = (0..8).map(|_| scope.spawn(|| gateway.charge("a", "{}"))).collect();
        for copy in copies {
            assert_eq!(copy.join().unwrap().status, 201);
        }
        let hasty = || gateway.post("/hasty", &[("Idempotency-Key", "a")], "{}");
        let copies: Vec<_> = (0..8).map(|_| scope.spawn(hasty)).collect();
        let answers: Vec<_> = copies.into_iter().map(|copy| copy.join().unwrap()).collect();
        assert_eq!(
            answers.iter().filter(|answer| answer.status == 201).count()
                + answers
                    .iter()
                    .filter(|answer| answer.status == 409 && answer.field("retry-after").is_some())
                    .count(),
            8,
            "{answers:?}"
        );
    });
    assert_eq!(service.effects(), 2);
}

#[test]
fn requests_over_the_limit_are_refused_and_replays_still_pass() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let service = Service::start(move |request| {
        if request.key() == "slow" {
            let _ = gate.lock().unwrap().recv();
        }
        Reply::created("{}")
    });
    let home = Home::new();
    let gateway = home.start_with(&service.url(), &["--in-flight-max", "1"]);
    assert_eq!(gateway.charge("before", "{}").status, 201);
    thread::scope(|scope| {
        let slow = scope.spawn(|| gateway.charge("slow", "{}"));
        eventually("the slow one is running", || (service.effects() == 2).then_some(()));
        let refused = gateway.charge("new", "{}");
        assert_eq!(refused.problem(), (503, "overloaded".into()));
        assert!(refused.field("retry-after").is_some());
        assert_eq!(gateway.charge("before", "{}").field("idempotent-replayed"), Some("true"));
        go.send(()).unwrap();
        assert_eq!(slow.join().unwrap().status, 201);
    });
    assert_eq!(gateway.charge("new", "{}").status, 201);
}
