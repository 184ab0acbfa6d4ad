//! Tests of the circuit breaker: opening, probes and closing.

use super::*;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A breaker that was sent `failures` failing tries at 0 s.
fn after(failures: u32) -> Breaker {
    let mut breaker = Breaker::new(BreakerConfig::default());
    for _ in 0..failures {
        let passage = breaker.ask(at(0));
        breaker.tell(at(0), passage, false);
    }
    breaker
}

#[test]
fn it_opens_when_most_tries_fail_and_there_are_enough_of_them() {
    assert!(after(19).is_closed());
    assert_eq!(after(20).ask(at(0)), BreakerDecision::Shut { retry_in: at(1000) });
    let mut half = Breaker::new(BreakerConfig::default());
    for number in 0..200 {
        half.tell(at(number), BreakerDecision::Free, number % 3 != 0);
    }
    assert!(half.is_closed(), "a third is not most");
}

#[test]
fn old_failures_are_forgotten() {
    let mut breaker = after(19);
    for _ in 0..19 {
        breaker.tell(at(10_000), BreakerDecision::Free, false);
    }
    assert!(breaker.is_closed());
    breaker.tell(at(10_000), BreakerDecision::Free, false);
    assert!(!breaker.is_closed());
}

#[test]
fn one_probe_at_a_time_and_enough_of_them_close_it() {
    let mut breaker = after(20);
    assert_eq!(breaker.ask(at(999)), BreakerDecision::Shut { retry_in: at(1) });
    assert_eq!(breaker.ask(at(1000)), BreakerDecision::Probe);
    assert!(matches!(breaker.ask(at(1000)), BreakerDecision::Shut { .. }), "one at a time");
    breaker.tell(at(1100), BreakerDecision::Probe, true);
    assert!(!breaker.is_closed());
    assert_eq!(breaker.ask(at(1100)), BreakerDecision::Probe);
    breaker.tell(at(1200), BreakerDecision::Probe, true);
    assert!(breaker.is_closed());
    breaker.tell(at(1200), BreakerDecision::Free, false);
    assert!(breaker.is_closed(), "what was before it opened does not count any more");
}

#[test]
fn a_failed_probe_doubles_the_pause_up_to_its_bound() {
    let mut breaker = after(20);
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let BreakerDecision::Shut { retry_in } = breaker.ask(now) else { panic!("it is open") };
        pauses.push(retry_in.as_secs());
        now += retry_in;
        assert_eq!(breaker.ask(now), BreakerDecision::Probe);
        breaker.tell(now, BreakerDecision::Probe, false);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn a_probe_without_a_result_does_not_keep_it_open_forever() {
    let mut breaker = after(20);
    assert_eq!(breaker.ask(at(1000)), BreakerDecision::Probe);
    assert_eq!(breaker.ask(at(1999)), BreakerDecision::Shut { retry_in: at(1) });
    assert_eq!(breaker.ask(at(2000)), BreakerDecision::Probe);
}

#[test]
fn results_of_tries_sent_before_it_opened_change_nothing() {
    let mut breaker = after(20);
    breaker.tell(at(10), BreakerDecision::Free, true);
    assert!(!breaker.is_closed());
    assert_eq!(breaker.ask(at(1000)), BreakerDecision::Probe);
    breaker.tell(at(1001), BreakerDecision::Free, false);
    breaker.tell(at(1002), BreakerDecision::Probe, true);
    assert_eq!(breaker.ask(at(1002)), BreakerDecision::Probe, "the free one's failure did not count");
}

#[test]
fn switched_off_it_never_opens() {
    let mut breaker = Breaker::new(BreakerConfig::OFF);
    for _ in 0..10_000 {
        breaker.tell(at(0), BreakerDecision::Free, false);
    }
    assert_eq!(breaker.ask(at(0)), BreakerDecision::Free);
}
