//! Tests of one call between tries: limits, deadline and expiry of the key.

use http::StatusCode;

use super::super::key_status::KeyStatus;
use super::*;

const LEAST: fn() -> Chance = || Chance(0);
const MOST: fn() -> Chance = || Chance(u64::MAX);
const LOST: TryResult = TryResult::Failed(Sent::Maybe);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn answered(status: u16, retry_after: Option<u64>, key_status: KeyStatus) -> TryResult {
    let status = StatusCode::from_u16(status).unwrap();
    TryResult::Answered { status, retry_after: retry_after.map(Duration::from_secs), key_status }
}

fn new_state() -> RetryState {
    RetryState::new(RetryConfig::default(), Guard::Keyed, at(0))
}

#[test]
fn it_ends_with_an_answer_that_is_final() {
    let mut state = new_state();
    assert_eq!(state.begin(at(0)), (1, at(30)));
    assert_eq!(state.next(at(1), &answered(201, None, KeyStatus::NotStated), MOST), Next::Finish);
}

#[test]
fn it_stops_at_the_maximum_number_of_tries() {
    let mut state = new_state();
    for _ in 1..10 {
        state.begin(at(0));
        assert!(matches!(state.next(at(0), &LOST, LEAST), Next::Retry { .. }));
    }
    assert_eq!(state.begin(at(0)).0, 10);
    assert_eq!(state.next(at(0), &LOST, LEAST), Next::Stop(StopReason::Tries));
}

#[test]
fn waiting_for_a_running_request_is_not_a_failure() {
    let mut state = new_state();
    for _ in 0..50 {
        state.begin(at(0));
        let waits = state.next(at(0), &answered(409, Some(1), KeyStatus::InProgress), LEAST);
        assert_eq!(waits, Next::Retry { pause: at(1) });
    }
}

#[test]
fn no_pause_begins_that_would_not_end_in_time() {
    let mut state = new_state();
    let busy = |hint| answered(503, Some(hint), KeyStatus::NotStated);
    assert_eq!(state.next(at(0), &busy(119), LEAST), Next::Retry { pause: at(119) });
    assert_eq!(
        state.next(at(1), &busy(119), LEAST),
        Next::Stop(StopReason::Deadline),
        "at once, not after two minutes"
    );
    assert_eq!(state.begin(at(115)).1, at(5), "and no try outlives the call");
}

#[test]
fn an_absurd_hint_is_clamped() {
    let config = RetryConfig::default().with_call_at_most(Duration::from_hours(1));
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    let busy = answered(429, Some(u64::MAX), KeyStatus::NotStated);
    assert_eq!(state.next(at(0), &busy, LEAST), Next::Retry { pause: at(300) });
}

#[test]
fn nothing_is_sent_again_after_the_key_expires() {
    let config = RetryConfig::default().with_honoured_for(at(10));
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    assert_eq!(state.begin(at(4)).1, at(6), "no try outlives the key");
    assert!(matches!(state.next(at(5), &LOST, LEAST), Next::Retry { .. }));
    let busy = answered(503, Some(8), KeyStatus::NotStated);
    assert_eq!(
        state.next(at(5), &busy, LEAST),
        Next::Stop(StopReason::Deadline),
        "not yet, but no time to wait"
    );
    assert_eq!(state.next(at(10), &LOST, LEAST), Next::Stop(StopReason::Expired));
    state.honoured(at(10), at(60));
    assert!(matches!(state.next(at(11), &LOST, LEAST), Next::Retry { .. }), "the server's word counts");
}

#[test]
fn a_request_that_was_never_sent_does_not_expire() {
    let config = RetryConfig::default().with_honoured_for(at(10));
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    let refused = TryResult::Failed(Sent::No);
    assert!(matches!(state.next(at(20), &refused, LEAST), Next::Retry { .. }));
    assert_eq!(state.was_sent(), Sent::No);
    let mut resumed = RetryState::new(config, Guard::Keyed, at(0)).resumed(at(0), at(5));
    assert_eq!(
        resumed.next(at(6), &refused, LEAST),
        Next::Stop(StopReason::Expired),
        "an earlier try may have been sent"
    );
}

#[test]
fn a_budget_delays_a_call_and_its_deadline_ends_it() {
    let state = new_state();
    let mut now = at(0);
    let mut waits = 0;
    let stopped = loop {
        match state.wait_for_budget(now, at(9), MOST) {
            Next::Retry { pause } => now += pause,
            next => break next,
        }
        waits += 1;
    };
    assert_eq!(stopped, Next::Stop(StopReason::Budget));
    assert!(now > at(100) && now < at(120) && waits == 11, "{now:?} {waits}");
}

#[test]
fn a_refusal_of_the_credentials_proves_that_nothing_ran() {
    for (status, key_status, expected) in [
        (401, KeyStatus::NotStated, Sent::No),
        (403, KeyStatus::NotStated, Sent::No),
        (407, KeyStatus::NotStated, Sent::No),
        (403, KeyStatus::Recorded, Sent::Maybe),
        (404, KeyStatus::NotStated, Sent::Maybe),
        (503, KeyStatus::NotStated, Sent::Maybe),
        (503, KeyStatus::NotRun, Sent::No),
        (409, KeyStatus::InProgress, Sent::Maybe),
    ] {
        let mut state = new_state();
        state.begin(at(0));
        state.next(at(0), &answered(status, None, key_status), LEAST);
        assert_eq!(state.was_sent(), expected, "{status} {key_status:?}");
        state.next(at(0), &LOST, LEAST);
        state.next(at(0), &answered(status, None, key_status), LEAST);
        assert_eq!(state.was_sent(), Sent::Maybe, "an earlier try may have run");
    }
}
