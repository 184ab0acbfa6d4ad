//! Tests of one call between tries: limits, deadline and expiry of the key.

use http::StatusCode;

use super::super::retry_decision::Said;
use super::*;

const LEAST: fn() -> Chance = || Chance(0);
const MOST: fn() -> Chance = || Chance(u64::MAX);
const LOST: Tried = Tried::Failed(Departed::Maybe);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn answered(status: u16, retry_after: Option<u64>, said: Said) -> Tried {
    let status = StatusCode::from_u16(status).unwrap();
    Tried::Answered { status, retry_after: retry_after.map(Duration::from_secs), said }
}

fn new_state() -> RetryState {
    RetryState::new(RetryConfig::default(), Guard::Keyed, at(0))
}

#[test]
fn it_ends_with_an_answer_that_is_final() {
    let mut state = new_state();
    assert_eq!(state.begin(at(0)), (1, at(30)));
    assert_eq!(state.next(at(1), &answered(201, None, Said::Nothing), MOST), Next::Give);
}

#[test]
fn it_stops_at_the_maximum_number_of_tries() {
    let mut state = new_state();
    for _ in 1..10 {
        state.begin(at(0));
        assert!(matches!(state.next(at(0), &LOST, LEAST), Next::Again { patient: false, .. }));
    }
    assert_eq!(state.begin(at(0)).0, 10);
    assert_eq!(state.next(at(0), &LOST, LEAST), Next::Stop(Why::Tries));
}

#[test]
fn waiting_for_a_running_request_is_not_a_failure() {
    let mut state = new_state();
    for _ in 0..50 {
        state.begin(at(0));
        let waits = state.next(at(0), &answered(409, Some(1), Said::InProgress), LEAST);
        assert_eq!(waits, Next::Again { pause: at(1), patient: true });
    }
}

#[test]
fn no_pause_begins_that_would_not_end_in_time() {
    let mut state = new_state();
    let busy = |hint| answered(503, Some(hint), Said::Nothing);
    assert_eq!(state.next(at(0), &busy(119), LEAST), Next::Again { pause: at(119), patient: false });
    assert_eq!(
        state.next(at(1), &busy(119), LEAST),
        Next::Stop(Why::Deadline),
        "at once, not after two minutes"
    );
    assert_eq!(state.begin(at(115)).1, at(5), "and no try outlives the call");
}

#[test]
fn an_absurd_hint_is_clamped() {
    let config = RetryConfig { call_at_most: Duration::from_hours(1), ..RetryConfig::default() };
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    let busy = answered(429, Some(u64::MAX), Said::Nothing);
    assert_eq!(state.next(at(0), &busy, LEAST), Next::Again { pause: at(300), patient: false });
}

#[test]
fn nothing_is_sent_again_after_the_key_expires() {
    let config = RetryConfig { honoured_for: at(10), ..RetryConfig::default() };
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    assert_eq!(state.begin(at(4)).1, at(6), "no try outlives the key");
    assert!(matches!(state.next(at(5), &LOST, LEAST), Next::Again { .. }));
    let busy = answered(503, Some(8), Said::Nothing);
    assert_eq!(state.next(at(5), &busy, LEAST), Next::Stop(Why::Deadline), "not yet, but no time to wait");
    assert_eq!(state.next(at(10), &LOST, LEAST), Next::Stop(Why::Expired));
    state.honoured(at(10), at(60));
    assert!(matches!(state.next(at(11), &LOST, LEAST), Next::Again { .. }), "the server's word counts");
}

#[test]
fn a_request_that_was_never_sent_does_not_expire() {
    let config = RetryConfig { honoured_for: at(10), ..RetryConfig::default() };
    let mut state = RetryState::new(config, Guard::Keyed, at(0));
    let refused = Tried::Failed(Departed::No);
    assert!(matches!(state.next(at(20), &refused, LEAST), Next::Again { .. }));
    assert_eq!(state.departed(), Departed::No);
    let mut resumed = RetryState::new(config, Guard::Keyed, at(0)).resumed(at(0), at(5));
    assert_eq!(
        resumed.next(at(6), &refused, LEAST),
        Next::Stop(Why::Expired),
        "an earlier try may have been sent"
    );
}

#[test]
fn a_patient_call_waits_until_its_deadline() {
    let mut state = new_state();
    let mut now = at(0);
    let mut waits = 0;
    while let Next::Again { pause, patient: true } = state.wait_longer(now, MOST) {
        assert!(!pause.is_zero(), "no busy waiting");
        now += pause;
        waits += 1;
    }
    assert!(now < at(120) && waits > 5, "{now:?} {waits}");
}
