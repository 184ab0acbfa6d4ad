//! Tests of the decision after one try.

use super::*;

fn answered(status: u16, key_status: KeyStatus) -> TryResult {
    TryResult::Answered { status: StatusCode::from_u16(status).unwrap(), retry_after: None, key_status }
}

#[test]
fn only_transient_statuses_are_retried() {
    for status in 100..600 {
        let transient = matches!(status, 408 | 425 | 429 | 500..);
        for guard in [Guard::Safe, Guard::Keyed] {
            let expected = if transient { Decision::Retry } else { Decision::Final };
            assert_eq!(
                decide(guard, &answered(status, KeyStatus::NotStated)),
                expected,
                "{status} {guard:?}"
            );
        }
        assert_eq!(decide(Guard::Bare, &answered(status, KeyStatus::NotStated)), Decision::Final, "{status}");
    }
}

#[test]
fn without_a_key_only_an_unsent_request_is_retried() {
    assert_eq!(decide(Guard::Bare, &TryResult::Failed(Sent::No)), Decision::Retry);
    assert_eq!(decide(Guard::Bare, &TryResult::Failed(Sent::Maybe)), Decision::Final);
    assert_eq!(decide(Guard::Keyed, &TryResult::Failed(Sent::Maybe)), Decision::Retry);
    assert_eq!(decide(Guard::Safe, &TryResult::Failed(Sent::Maybe)), Decision::Retry);
}

#[test]
fn a_request_that_cannot_be_sent_is_not_retried() {
    for guard in [Guard::Safe, Guard::Keyed, Guard::Bare] {
        assert_eq!(decide(guard, &TryResult::Impossible), Decision::Final, "{guard:?}");
    }
    assert!(TryResult::Impossible.went_well(), "the host was not asked");
}

#[test]
fn what_the_server_says_about_the_key_overrides_the_status() {
    for (status, key_status, expected) in [
        (409, KeyStatus::InProgress, Decision::Wait),
        (503, KeyStatus::InProgress, Decision::Wait),
        (409, KeyStatus::OutcomeUnknown, Decision::Unknown),
        (410, KeyStatus::Expired, Decision::Expired),
        (409, KeyStatus::Dead, Decision::Final),
        (422, KeyStatus::NotRetryable, Decision::Final),
        (503, KeyStatus::NotRetryable, Decision::Final),
        (500, KeyStatus::Recorded, Decision::Final),
        (503, KeyStatus::Recorded, Decision::Final),
        (503, KeyStatus::NotRun, Decision::Retry),
        // A route may give a problem another status.
        (420, KeyStatus::NotRun, Decision::Retry),
        (420, KeyStatus::Retryable, Decision::Retry),
    ] {
        let tried = answered(status, key_status);
        assert_eq!(decide(Guard::Keyed, &tried), expected, "{status} {key_status:?}");
        assert_eq!(
            decide(Guard::Bare, &tried),
            Decision::Final,
            "without a key it is the answer: {key_status:?}"
        );
    }
}

#[test]
fn a_recorded_failure_is_no_failure_of_the_host() {
    for status in [500, 502, 503, 504] {
        assert!(answered(status, KeyStatus::Recorded).went_well(), "{status}");
        assert!(!answered(status, KeyStatus::NotStated).went_well(), "{status}");
    }
    assert!(!answered(503, KeyStatus::NotRun).went_well(), "it is overloaded");
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
