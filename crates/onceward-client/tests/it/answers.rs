//! Which answers are retried, and which result a caller gets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use onceward::Effect;
use onceward_client::{
    BreakerConfig, BudgetConfig, Client, ErrorKind, FailureCause, ReplySource, ServerRecord, WhenOpen,
};

use crate::schedules::patient;
use crate::server::{Fault, Server};

/// A server with these faults, in this order, and then none.
async fn faulty(faults: Vec<Fault>) -> Server {
    let faults = Mutex::new(faults.into_iter());
    Server::start(move |_| faults.lock().unwrap().next().unwrap_or(Fault::None)).await
}

fn client() -> Client {
    crate::builder().with_retry_config(patient()).build().unwrap()
}

fn body() -> serde_json::Value {
    serde_json::json!({ "intent": "i" })
}

#[tokio::test]
async fn a_report_tells_how_it_went() {
    let server = faulty(vec![Fault::Status(503), Fault::DropAfterEffect]).await;
    let client = client();
    let answer = client.post(&server.url).json(&body()).send().await.unwrap();
    let report = answer.report();
    assert_eq!((report.tries, report.source), (3, ReplySource::Replay));
    assert_eq!(report.failures[0].cause, FailureCause::Status(503));
    assert!(
        matches!(&report.failures[1].cause, FailureCause::NoAnswer(why) if !why.is_empty()),
        "{report:?}"
    );
    let text = report.to_string();
    assert!(text.starts_with("3 tries in ") && text.ends_with(", replayed"), "{text}");
    let counts = client.counts();
    assert_eq!((counts.calls, counts.tries, counts.retries, counts.replays), (1, 3, 2, 1));
    assert_eq!(counts.tries_failed, 1);
}

#[tokio::test]
async fn a_call_without_time_sends_nothing() {
    let server = faulty(vec![]).await;
    let client = client();
    let error = client.post(&server.url).json(&body()).at_most(Duration::ZERO).send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, Effect::None), "{error}");
    assert_eq!(client.counts().tries, 0);
}

#[tokio::test]
async fn a_final_status_is_an_answer_at_once() {
    for status in [400, 401, 403, 404, 409, 410, 412, 422, 451] {
        let server = faulty(vec![Fault::Status(status)]).await;
        let answer = client().post(&server.url).json(&body()).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.report().tries), (status, 1));
    }
}

#[tokio::test]
async fn without_a_key_a_request_that_may_have_been_sent_is_not_sent_again() {
    for fault in [Fault::DropBeforeEffect, Fault::DropAfterEffect, Fault::DropMidAnswer, Fault::Garbage] {
        let server = faulty(vec![fault]).await;
        let error = client().post(&server.url).json(&body()).without_key().send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unknown, Effect::Maybe), "{fault:?}");
        assert_eq!(server.intent("i").numbers, [1], "{fault:?}");
        assert!(server.intent("i").keys.contains(""), "no key was sent");
    }
    let server = faulty(vec![Fault::Status(503)]).await;
    let answer = client().post(&server.url).json(&body()).without_key().send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.report().tries), (503, 1), "the answer is all there is");
}

#[tokio::test]
async fn without_a_key_an_unsent_request_is_sent_again() {
    // A port that is bound and on which nothing listens.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap();
    let config = patient().with_tries_max(4);
    let client = crate::builder().with_retry_config(config).build().unwrap();
    let error = client.post(format!("http://{address}/")).without_key().send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, Effect::None), "{error}");
    assert_eq!(error.report().unwrap().tries, 4);
    assert!(error.to_string().contains("did not take effect"), "{error}");
}

#[tokio::test]
async fn a_get_needs_no_key_and_is_retried() {
    let server = Server::start(|came| if came.before < 2 { Fault::Status(500) } else { Fault::None }).await;
    let answer = client().get(&server.url).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.report().tries), (201, 3));
    assert!(server.intent("").keys.contains(""));
}

#[tokio::test]
async fn a_host_that_fails_most_tries_is_paused_and_then_probed() {
    let well = Arc::new(AtomicBool::new(false));
    let server = {
        let well = well.clone();
        Server::start(move |_| if well.load(Ordering::SeqCst) { Fault::None } else { Fault::Status(500) })
            .await
    };
    let (tries, short) = (5, Duration::from_millis(50));
    let breaker =
        BreakerConfig::default().with_tries_min(tries).with_open_for(short).with_open_for_max(short);
    let client = crate::builder().with_retry_config(patient().with_breaker(breaker)).build().unwrap();
    let error = client.post(&server.url).json(&body()).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GaveUp);
    assert!(error.retry_in().is_some(), "{error}");
    assert_eq!(server.intent("i").numbers.len(), 5, "not one more");
    well.store(true, Ordering::SeqCst);
    // It closes again by itself, also on a slow machine.
    for _ in 0..2 {
        while client.post(&server.url).json(&body()).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    client.post(&server.url).json(&body()).send().await.unwrap();
    assert!(client.counts().stopped_by_breaker >= 1);
}

/// A process that sends one request has nothing else to do: an open breaker delays it, and only its deadline ends it.
#[tokio::test]
async fn a_call_that_waits_for_an_open_breaker_is_answered_or_ends_at_its_deadline() {
    let well_after = Arc::new(AtomicUsize::new(7));
    let server = {
        let well_after = well_after.clone();
        Server::start(move |came| {
            if came.before < well_after.load(Ordering::SeqCst) { Fault::Status(500) } else { Fault::None }
        })
        .await
    };
    let short = Duration::from_millis(50);
    let breaker = BreakerConfig::default().with_tries_min(5).with_open_for(short).with_open_for_max(short);
    let config = patient().with_breaker(breaker.with_when_open(WhenOpen::Wait));
    let client = crate::builder().with_retry_config(config).build().unwrap();
    let answer = client.post(&server.url).json(&body()).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.report().tries), (201, 8));
    // Two probes that failed, and the one that was answered, waited for the breaker.
    assert!(answer.report().paused >= 3 * short, "{}", answer.report());
    assert_eq!(client.counts().stopped_by_breaker, 0);

    well_after.store(usize::MAX, Ordering::SeqCst);
    let long = Duration::from_secs(60);
    let breaker = breaker.with_open_for_max(long).with_open_for(long).with_when_open(WhenOpen::Wait);
    let config = patient().with_breaker(breaker).with_call_at_most(Duration::from_secs(30));
    let client = crate::builder().with_retry_config(config).build().unwrap();
    let error = client.post(&server.url).json(&body()).send().await.unwrap_err();
    // It would still be open at the deadline: nothing is gained by waiting until then.
    assert_eq!(error.kind(), ErrorKind::GaveUp);
    assert!(error.retry_in().is_some_and(|wait| wait > Duration::from_secs(30)), "{error}");
    assert_eq!(client.counts().stopped_by_breaker, 1);
}

#[tokio::test]
async fn retries_stay_within_the_budget_of_the_host() {
    let server = Server::start(|_| Fault::Status(503)).await;
    let config = patient()
        .with_budget(BudgetConfig::default().with_floor(0))
        .with_call_at_most(Duration::from_millis(500));
    let client = crate::builder().with_retry_config(config).build().unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (client, url) = (client.clone(), server.url.clone());
        calls.spawn(async move { client.post(&url).json(&body()).send().await.unwrap_err() });
    }
    while let Some(error) = calls.join_next().await {
        assert_eq!(error.unwrap().kind(), ErrorKind::GaveUp);
    }
    let counts = client.counts();
    assert!(counts.retries <= 10, "a tenth of a hundred: {counts:?}");
    assert!(counts.stopped_by_budget >= 80, "{counts:?}");
}

/// The outcome of the request is a failure, and the server has recorded it.
#[tokio::test]
async fn a_recorded_failure_is_final_and_no_mark_against_the_host() {
    let kept = "Idempotency-Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
    for (status, field, source, record) in [
        (500, "Idempotent-Replayed: true\r\n", ReplySource::Replay, ServerRecord::Kept),
        (503, "Idempotent-Replayed: true\r\n", ReplySource::Replay, ServerRecord::Kept),
        (500, kept, ReplySource::Server, ServerRecord::Kept),
        (502, kept, ReplySource::Server, ServerRecord::Kept),
        (500, "Onceward-Recorded: not-yet\r\n", ReplySource::Server, ServerRecord::NotYet),
    ] {
        let server = Server::start(move |_| Fault::StatusWith(status, field)).await;
        // One failure would open the breaker, and no retry is paid for.
        let breaker = BreakerConfig::default().with_tries_min(1).with_failures_percent(1);
        let config = patient().with_breaker(breaker).with_budget(BudgetConfig::default().with_floor(0));
        let client = crate::builder().with_retry_config(config).build().unwrap();
        for _ in 0..3 {
            let answer = client.post(&server.url).json(&body()).send().await.unwrap();
            let report = answer.report();
            assert_eq!((answer.status().as_u16(), report.tries), (status, 1), "{field}");
            assert_eq!((report.source, report.server_record), (source, record), "{field}");
        }
        let counts = client.counts();
        assert_eq!((counts.tries, counts.retries, counts.stopped_by_breaker), (3, 0, 0), "{field}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_recorded_yet_is_an_answer() {
    let server = Server::start(|_| Fault::StatusWith(201, "Onceward-Recorded: not-yet\r\n")).await;
    let answer = client().post(&server.url).json(&body()).send().await.unwrap();
    assert_eq!(answer.report().server_record, ServerRecord::NotYet);
    assert!(answer.report().to_string().ends_with("not yet recorded by the server"), "{}", answer.report());
}

/// It is done. Its answer is gone, so this is no 409 that a caller might take for a refusal.
#[tokio::test]
async fn a_request_that_is_done_without_a_stored_answer_says_so() {
    let server = Server::start(|_| Fault::NotStored).await;
    let error = client().post(&server.url).json(&body()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::AnswerNotAvailable, Effect::Maybe));
    assert!(error.to_string().contains("answered with 201"), "{error}");
    assert_eq!(error.report().unwrap().tries, 1);
}

#[tokio::test]
async fn a_hint_beyond_the_deadline_ends_the_call_at_once() {
    let server = Server::start(|_| Fault::Busy("99999999999999999999")).await;
    let config = patient().with_retry_after_max(Duration::from_hours(24));
    let client = crate::builder().with_retry_config(config).build().unwrap();
    let error = client.post(&server.url).json(&body()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.report().unwrap().tries), (ErrorKind::GaveUp, 1));
    assert!(error.to_string().contains("its time is up"), "{error}");
}

#[tokio::test]
async fn a_body_in_pieces_is_read_up_to_a_bound_and_refused_beyond_it() {
    let server = faulty(vec![Fault::DropAfterEffect]).await;
    let client = crate::builder().with_retry_config(patient()).with_request_bytes_max(100).build().unwrap();
    let pieces = Full::new(Bytes::from(body().to_string()));
    let answer = client.post(&server.url).body_from(pieces).await.send().await.unwrap();
    assert_eq!(answer.report().tries, 2, "read once, sent twice");
    for request in [
        client.post(&server.url).body_from(Full::new(Bytes::from(vec![b'x'; 101]))).await,
        client.post(&server.url).body(vec![b'x'; 101]),
    ] {
        let error = request.send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None));
        assert!(error.to_string().contains("over 100 bytes"), "{error}");
    }
    assert_eq!(server.state().requests, 2);
}

#[tokio::test]
async fn an_answer_over_the_bound_is_not_handed_out_and_not_asked_for_again() {
    let server = faulty(vec![]).await;
    let client = crate::builder().with_retry_config(patient()).with_answer_bytes_max(4).build().unwrap();
    let error = client.post(&server.url).json(&body()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::AnswerNotAvailable, Effect::Maybe));
    assert_eq!(server.state().requests, 1);
}

#[tokio::test]
async fn an_invalid_request_is_refused_before_anything_is_sent() {
    let client = client();
    for request in [
        client.post("not a url"),
        client.post("ftp://example.org/"),
        client.post("http://127.0.0.1:1/").key(""),
        client.post("http://127.0.0.1:1/").key("ü"),
        client.post("http://127.0.0.1:1/").header("bad name", "x"),
        client.post("http://127.0.0.1:1/").header("x", "\n"),
        client.post("http://127.0.0.1:1/").header("idempotency-key", "x"),
        client.post("http://127.0.0.1:1/").intent("order-7"),
    ] {
        let error = request.send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None), "{error}");
    }
    assert_eq!(client.counts().tries, 0);
}
