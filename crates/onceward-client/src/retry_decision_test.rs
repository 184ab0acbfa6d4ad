//! Tests of the decision after one try.

use http::HeaderValue;

use super::*;

fn answered(status: u16, said: Said) -> Tried {
    Tried::Answered { status: StatusCode::from_u16(status).unwrap(), retry_after: None, said }
}

#[test]
fn only_transient_statuses_are_retried() {
    for status in 100..600 {
        let transient = matches!(status, 408 | 425 | 429 | 500..);
        for guard in [Guard::Safe, Guard::Keyed] {
            let expected = if transient { Judged::Again } else { Judged::Final };
            assert_eq!(judge(guard, &answered(status, Said::Nothing)), expected, "{status} {guard:?}");
        }
        assert_eq!(judge(Guard::Bare, &answered(status, Said::Nothing)), Judged::Final, "{status}");
    }
}

#[test]
fn without_a_key_only_an_unsent_request_is_retried() {
    assert_eq!(judge(Guard::Bare, &Tried::Failed(Departed::No)), Judged::Again);
    assert_eq!(judge(Guard::Bare, &Tried::Failed(Departed::Maybe)), Judged::Final);
    assert_eq!(judge(Guard::Keyed, &Tried::Failed(Departed::Maybe)), Judged::Again);
    assert_eq!(judge(Guard::Safe, &Tried::Failed(Departed::Maybe)), Judged::Again);
}

#[test]
fn a_request_that_cannot_be_sent_is_not_retried() {
    for guard in [Guard::Safe, Guard::Keyed, Guard::Bare] {
        assert_eq!(judge(guard, &Tried::Impossible), Judged::Final, "{guard:?}");
    }
    assert!(Tried::Impossible.went_well(), "the host was not asked");
}

#[test]
fn what_the_server_says_about_the_key_overrides_the_status() {
    for (status, said, expected) in [
        (409, Said::InProgress, Judged::Wait),
        (409, Said::OutcomeUnknown, Judged::Unknown),
        (410, Said::KeyExpired, Judged::Expired),
        (422, Said::NotRetryable, Judged::Final),
        (503, Said::NotRetryable, Judged::Final),
        (503, Said::InProgress, Judged::Wait),
    ] {
        assert_eq!(judge(Guard::Keyed, &answered(status, said)), expected, "{status} {said:?}");
    }
}

#[test]
fn only_safe_methods_are_safe_without_a_key() {
    for (method, keyed, expected) in [
        (Method::GET, false, Guard::Safe),
        (Method::HEAD, false, Guard::Safe),
        (Method::POST, false, Guard::Bare),
        (Method::PATCH, false, Guard::Bare),
        (Method::PUT, false, Guard::Bare),
        (Method::DELETE, false, Guard::Bare),
        (Method::POST, true, Guard::Keyed),
        (Method::GET, true, Guard::Keyed),
    ] {
        assert_eq!(Guard::of(&method, keyed), expected, "{method} {keyed}");
    }
}

#[test]
fn every_problem_of_the_server_is_recognised() {
    let problems = [
        (Problem::KeyMissing, Said::NotRetryable),
        (Problem::KeyReused, Said::NotRetryable),
        (Problem::InProgress { retry_after: Duration::from_secs(1) }, Said::InProgress),
        (Problem::OutcomeUnknown { retry_after: None }, Said::OutcomeUnknown),
        // The server is reconciling the outcome.
        (Problem::OutcomeUnknown { retry_after: Some(Duration::from_secs(1)) }, Said::InProgress),
        (Problem::ResponseNotStored { original_status: Some(200) }, Said::NotRetryable),
        (Problem::KeyExpired, Said::KeyExpired),
        (Problem::BodyTooLarge(1), Said::NotRetryable),
        (Problem::StoreUnavailable, Said::Nothing),
        (Problem::Overloaded, Said::Nothing),
    ];
    for (problem, expected) in problems {
        let (name, status) = (problem.name(), problem.status());
        let response = problem.into_response(status);
        assert_eq!(Said::read(response.headers(), response.body()), expected, "{name}");
    }
}

#[test]
fn other_bodies_say_nothing() {
    let ours = br#"{"type":"urn:onceward:problem:in-progress","retryable":true}"#;
    let read = |content_type, body: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Said::read(&headers, body)
    };
    assert_eq!(read("application/problem+json; charset=utf-8", ours), Said::InProgress);
    assert_eq!(read("Application/Problem+JSON", ours), Said::InProgress);
    assert_eq!(read("application/json", ours), Said::Nothing);
    for body in [&b""[..], b"null", b"[]", b"{", b"{\"type\":7}", b"{\"retryable\":\"false\"}", b"\xff\xfe"] {
        assert_eq!(read("application/problem+json", body), Said::Nothing, "{body:?}");
    }
    assert_eq!(
        read("application/problem+json", b"{\"retryable\":false}"),
        Said::NotRetryable,
        "of any vendor"
    );
    assert_eq!(Said::read(&HeaderMap::new(), ours), Said::Nothing);
}
