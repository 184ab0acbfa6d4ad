//! Tests of the bound on new keys.

use super::*;

fn bound(max: u32, within_s: u64) -> NewKeys {
    NewKeys::new(NonZeroU32::new(max).unwrap(), Duration::from_secs(within_s))
}

fn at(ms: u64) -> Duration {
    // Some time after the start of the process.
    Duration::from_secs(1_000) + Duration::from_millis(ms)
}

#[test]
fn a_caller_begins_as_many_as_allowed_at_once_and_then_one_after_the_other() {
    let keys = bound(10, 60);
    for number in 0..10 {
        assert!(keys.take("a", at(number)).is_ok(), "{number}");
    }
    assert_eq!(keys.taken_most(at(10)), 10);
    let wait = keys.take("a", at(10)).unwrap_err();
    assert_eq!(wait, Duration::from_millis(6_000 - 10), "one is back every six seconds");
    assert_eq!(keys.check("a", at(10)), Err(wait));
    assert!(keys.take("b", at(10)).is_ok(), "others have a bound of their own");
    assert!(keys.check("a", at(6_000)).is_ok() && keys.take("a", at(6_000)).is_ok());
    assert!(keys.take("a", at(6_000)).is_err());
    for number in 0..10 {
        assert!(keys.take("a", at(66_000)).is_ok(), "after a minute all are back: {number}");
    }
    assert!(keys.take("a", at(66_000)).is_err());
}

#[test]
fn a_check_takes_nothing_and_what_is_given_back_can_be_taken() {
    let keys = bound(1, 3_600);
    for _ in 0..3 {
        assert!(keys.check("a", at(0)).is_ok());
    }
    let charged = keys.take("a", at(0)).unwrap();
    assert!(keys.take("a", at(1)).is_err());
    keys.give_back(charged);
    assert!(keys.take("a", at(1)).is_ok());
}

#[test]
fn memory_is_bounded_and_nobody_is_forgotten_early() {
    let keys = bound(2, 60);
    assert!(keys.take("a", at(0)).is_ok() && keys.take("a", at(0)).is_ok());
    for other in 0..CALLERS_MAX {
        assert!(keys.take(other, at(1)).is_ok());
    }
    assert!(keys.take("a", at(2)).is_err(), "it is in the older generation");
    for other in 0..3 * CALLERS_MAX {
        assert!(keys.take(("more", other), at(3)).is_ok());
    }
    let callers = keys.callers();
    assert!(callers.recent.len() <= CALLERS_MAX && callers.older.len() <= CALLERS_MAX);
}

#[test]
fn callers_that_are_gone_are_removed() {
    let keys = bound(2, 60);
    for other in 0..100 {
        assert!(keys.take(other, at(0)).is_ok());
    }
    for minute in 1..3 {
        assert!(keys.take("a", at(minute * 60_000)).is_ok());
    }
    let callers = keys.callers();
    assert_eq!((callers.recent.len(), callers.older.len()), (1, 0));
}

/// More keys in a shorter time than can be told apart.
#[test]
fn extreme_bounds_do_not_overflow() {
    for (max, within) in [(u32::MAX, Duration::from_nanos(1)), (1, Duration::MAX), (u32::MAX, Duration::MAX)]
    {
        let keys = NewKeys::new(NonZeroU32::new(max).unwrap(), within);
        assert!(keys.take("a", at(0)).is_ok(), "{max} {within:?}");
        assert!(keys.taken_most(at(0)) >= 1);
        assert_eq!(keys.take("a", at(0)).is_ok(), max > 1, "{max} {within:?}");
    }
}
