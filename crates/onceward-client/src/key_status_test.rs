//! Tests of what an answer says about the key: every problem of the server, and the fields of a recorded answer.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use onceward_http::problem::Problem;

use super::super::retry_decision::{Decision, Guard, TryResult, decide};
use super::*;

/// The reaction to every problem: what the call does, and whether the intent stays open in a journal if the call ends
/// with this answer.
const REACTIONS: [(&str, Decision, bool); 21] = [
    ("key-missing", Decision::Final, false),
    ("key-malformed", Decision::Final, false),
    ("key-reused", Decision::Final, false),
    ("in-progress", Decision::Wait, false),
    ("outcome-unknown", Decision::Unknown, false),
    ("dead", Decision::Final, true),
    ("closed", Decision::Final, false),
    ("response-not-stored", Decision::Final, false),
    ("same-request-other-key", Decision::Final, false),
    ("precondition-required", Decision::Final, false),
    ("precondition-failed", Decision::Final, false),
    ("precondition-malformed", Decision::Final, false),
    ("key-expired", Decision::Expired, false),
    ("body-too-large", Decision::Final, false),
    ("store-unavailable", Decision::Retry, false),
    ("overloaded", Decision::Retry, false),
    ("quota-exceeded", Decision::Retry, false),
    ("scope-missing", Decision::Final, true),
    ("signature-refused", Decision::Final, false),
    ("upstream-unreachable", Decision::Retry, false),
    ("upstream-timeout", Decision::Retry, false),
];

fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}

#[test]
fn every_problem_of_the_server_has_a_defined_reaction() {
    let problem_json = headers(&[(CONTENT_TYPE, "application/problem+json")]);
    for name in Problem::NAMES {
        let (_, expected, open) =
            REACTIONS.iter().find(|(known, ..)| *known == name).unwrap_or_else(|| panic!("{name} has none"));
        let retryable = matches!(*expected, Decision::Retry | Decision::Wait);
        let body = format!("{{\"type\":\"urn:onceward:problem:{name}\",\"retryable\":{retryable}}}");
        // The type counts, not the status: a route may give it another one.
        for code in [409, 420, 503] {
            let key_status = KeyStatus::read(status(code), &problem_json, body.as_bytes());
            let tried = TryResult::Answered { status: status(code), retry_after: None, key_status };
            assert_eq!(decide(Guard::Keyed, &tried), *expected, "{name} {code}");
            assert_eq!(stays_open(status(code), &problem_json, body.as_bytes()), *open, "{name} {code}");
        }
    }
}

#[test]
fn problems_as_the_server_writes_them_are_recognised() {
    let second = Duration::from_secs(1);
    for (problem, expected) in [
        (Problem::KeyReused, KeyStatus::NotRetryable),
        (Problem::InProgress { retry_after: second }, KeyStatus::InProgress),
        (Problem::OutcomeUnknown { retry_after: None }, KeyStatus::OutcomeUnknown),
        // The server is reconciling the outcome.
        (Problem::OutcomeUnknown { retry_after: Some(second) }, KeyStatus::InProgress),
        (Problem::Dead, KeyStatus::Dead),
        (Problem::Closed, KeyStatus::NotRetryable),
        (Problem::KeyExpired, KeyStatus::Expired),
        (Problem::StoreUnavailable, KeyStatus::Retryable),
        (Problem::QuotaExceeded { retry_after: second }, KeyStatus::NotRun),
    ] {
        let (name, code) = (problem.name(), problem.status());
        let response = problem.into_response(code);
        assert_eq!(KeyStatus::read(code, response.headers(), response.body()), expected, "{name}");
    }
    let gone = Problem::ResponseNotStored { original_status: Some(201) }.into_response(status(409));
    assert_eq!(
        not_stored(gone.headers(), gone.body()),
        Some(DoneWithoutAnswer { status: Some(status(201)) })
    );
    let gone = Problem::ResponseNotStored { original_status: None }.into_response(status(409));
    assert_eq!(not_stored(gone.headers(), gone.body()), Some(DoneWithoutAnswer { status: None }));
}

#[test]
fn an_answer_that_the_server_keeps_is_the_outcome() {
    let kept = (IDEMPOTENCY_EXPIRES, "Fri, 01 Jan 2100 00:00:00 GMT");
    let replayed = (IDEMPOTENT_REPLAYED, "true");
    let not_yet = (ONCEWARD_RECORDED, "not-yet");
    for (code, fields, expected) in [
        (500, vec![], KeyStatus::NotStated),
        (500, vec![kept.clone()], KeyStatus::Recorded),
        (503, vec![kept.clone()], KeyStatus::Recorded),
        (500, vec![not_yet.clone()], KeyStatus::Recorded),
        (403, vec![kept.clone()], KeyStatus::Recorded),
        (429, vec![kept.clone()], KeyStatus::NotStated),
        (429, vec![replayed.clone()], KeyStatus::Recorded),
        (401, vec![replayed.clone()], KeyStatus::Recorded),
        (500, vec![(IDEMPOTENT_REPLAYED, "false")], KeyStatus::NotStated),
        (500, vec![(ONCEWARD_RECORDED, "perhaps")], KeyStatus::NotStated),
    ] {
        assert_eq!(KeyStatus::read(status(code), &headers(&fields), b""), expected, "{code} {fields:?}");
    }
    // The service behind the server wrote a problem of its own; the server has recorded it.
    let headers = headers(&[replayed, (CONTENT_TYPE, "application/problem+json")]);
    let body = br#"{"type":"urn:onceward:problem:in-progress","retryable":true}"#;
    assert_eq!(KeyStatus::read(status(409), &headers, body), KeyStatus::Recorded);
}

#[test]
fn credentials_that_were_refused_leave_an_intent_open() {
    for (code, open) in [(401, true), (403, true), (407, true), (400, false), (404, false), (422, false)] {
        assert_eq!(stays_open(status(code), &HeaderMap::new(), b"no"), open, "{code}");
        let replayed = headers(&[(IDEMPOTENT_REPLAYED, "true")]);
        assert!(!stays_open(status(code), &replayed, b"no"), "a replay is final: {code}");
    }
}

#[test]
fn other_bodies_say_nothing() {
    let ours = br#"{"type":"urn:onceward:problem:in-progress","retryable":true}"#;
    let read = |content_type, body: &[u8]| {
        KeyStatus::read(status(409), &headers(&[(CONTENT_TYPE, content_type)]), body)
    };
    assert_eq!(read("application/problem+json; charset=utf-8", ours), KeyStatus::InProgress);
    assert_eq!(read("Application/Problem+JSON", ours), KeyStatus::InProgress);
    assert_eq!(read("application/json", ours), KeyStatus::NotStated);
    for body in [&b""[..], b"null", b"[]", b"{", b"{\"type\":7}", b"{\"retryable\":\"false\"}", b"\xff\xfe"] {
        assert_eq!(read("application/problem+json", body), KeyStatus::NotStated, "{body:?}");
    }
    let vendor = |body| read("application/problem+json", body);
    assert_eq!(vendor(b"{\"retryable\":false}"), KeyStatus::NotRetryable, "of any vendor");
    assert_eq!(vendor(b"{\"retryable\":true}"), KeyStatus::NotStated, "only ours");
    assert_eq!(KeyStatus::read(status(409), &HeaderMap::new(), ours), KeyStatus::NotStated);
}
