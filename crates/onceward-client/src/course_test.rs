use http::StatusCode;

use super::super::judge::Said;
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

fn course() -> Course {
    Course::new(Terms::default(), Guard::Keyed, at(0))
}

#[test]
fn it_ends_with_an_answer_that_is_final() {
    let mut course = course();
    assert_eq!(course.begin(at(0)), (1, at(30)));
    assert_eq!(course.next(at(1), &answered(201, None, Said::Nothing), MOST), Next::Give);
}

#[test]
fn it_is_tried_as_often_as_the_terms_allow() {
    let mut course = course();
    for _ in 1..10 {
        course.begin(at(0));
        assert!(matches!(course.next(at(0), &LOST, LEAST), Next::Again { patient: false, .. }));
    }
    assert_eq!(course.begin(at(0)).0, 10);
    assert_eq!(course.next(at(0), &LOST, LEAST), Next::Stop(Why::Tries));
}

#[test]
fn waiting_for_the_first_one_is_no_failure() {
    let mut course = course();
    for _ in 0..50 {
        course.begin(at(0));
        let waits = course.next(at(0), &answered(409, Some(1), Said::InProgress), LEAST);
        assert_eq!(waits, Next::Again { pause: at(1), patient: true });
    }
}

#[test]
fn no_pause_begins_that_would_not_end_in_time() {
    let mut course = course();
    let busy = |hint| answered(503, Some(hint), Said::Nothing);
    assert_eq!(course.next(at(0), &busy(119), LEAST), Next::Again { pause: at(119), patient: false });
    assert_eq!(
        course.next(at(1), &busy(119), LEAST),
        Next::Stop(Why::Deadline),
        "at once, not after two minutes"
    );
    assert_eq!(course.begin(at(115)).1, at(5), "and no try outlives the call");
}

#[test]
fn an_absurd_hint_is_clamped() {
    let terms = Terms { call_at_most: Duration::from_hours(1), ..Terms::default() };
    let mut course = Course::new(terms, Guard::Keyed, at(0));
    let busy = answered(429, Some(u64::MAX), Said::Nothing);
    assert_eq!(course.next(at(0), &busy, LEAST), Next::Again { pause: at(300), patient: false });
}

#[test]
fn nothing_is_sent_again_once_the_key_may_not_be_honoured() {
    let terms = Terms { honoured_for: at(10), ..Terms::default() };
    let mut course = Course::new(terms, Guard::Keyed, at(0));
    assert_eq!(course.begin(at(4)).1, at(6), "no try outlives the key");
    assert!(matches!(course.next(at(5), &LOST, LEAST), Next::Again { .. }));
    let busy = answered(503, Some(8), Said::Nothing);
    assert_eq!(course.next(at(5), &busy, LEAST), Next::Stop(Why::Deadline), "not yet, but no time to wait");
    assert_eq!(course.next(at(10), &LOST, LEAST), Next::Stop(Why::Expired));
    course.honoured(at(10), at(60));
    assert!(matches!(course.next(at(11), &LOST, LEAST), Next::Again { .. }), "the server's word counts");
}

#[test]
fn what_never_left_has_no_key_to_be_honoured() {
    let terms = Terms { honoured_for: at(10), ..Terms::default() };
    let mut course = Course::new(terms, Guard::Keyed, at(0));
    let refused = Tried::Failed(Departed::No);
    assert!(matches!(course.next(at(20), &refused, LEAST), Next::Again { .. }));
    assert_eq!(course.departed(), Departed::No);
    let mut resumed = Course::new(terms, Guard::Keyed, at(0)).resumed(at(0), at(5));
    assert_eq!(
        resumed.next(at(6), &refused, LEAST),
        Next::Stop(Why::Expired),
        "somebody else's try may have"
    );
}

#[test]
fn a_patient_call_lingers_until_its_time_is_up() {
    let mut course = course();
    let mut now = at(0);
    let mut lingered = 0;
    while let Next::Again { pause, patient: true } = course.linger(now, MOST) {
        assert!(!pause.is_zero(), "no busy waiting");
        now += pause;
        lingered += 1;
    }
    assert!(now < at(120) && lingered > 5, "{now:?} {lingered}");
}
