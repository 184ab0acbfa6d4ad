//! Tests of the adaptive limit.

use super::*;

const TARGET: Duration = Duration::from_millis(100);
const QUICK: Duration = Duration::from_millis(50);

/// A limit that begins at a hundred.
fn hundred() -> AdaptiveLimit {
    AdaptiveLimit { limit: 100.0, ..AdaptiveLimit::new(TARGET, 1) }
}

/// Sends this many through, each answered after `latency`, all begun at `at`.
fn window(limit: &mut AdaptiveLimit, at: Duration, latency: Duration, count: usize) {
    let begun = limit.begin(limit.current(), at);
    for _ in 0..count {
        limit.answered(Load::ByLatency, begun, at + latency);
    }
}

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

#[test]
fn it_doubles_until_the_first_cut_and_then_grows_by_little() {
    let mut limit = hundred();
    window(&mut limit, at(1), QUICK, 100);
    assert_eq!(limit.current(), 200);
    window(&mut limit, at(2), TARGET * 4, 21);
    assert_eq!(limit.current(), 100, "the strongest cut is by half");
    window(&mut limit, at(3), QUICK, 100);
    assert_eq!(limit.current(), 102);
    window(&mut limit, at(4), TARGET + TARGET / 100, 11);
    assert_eq!(limit.current(), 91, "the weakest is by a tenth");
}

#[test]
fn answers_to_what_began_before_a_cut_do_not_cut_again() {
    let mut limit = hundred();
    window(&mut limit, at(1), at(1), 100);
    assert_eq!(limit.current(), 50);
    window(&mut limit, at(1), at(5), 1_000);
    assert_eq!(limit.current(), 50);
    window(&mut limit, at(3), at(1), 6);
    assert_eq!(limit.current(), 25);
}

#[test]
fn it_does_not_grow_unless_it_was_reached_and_is_not_cut_far_below_it() {
    let mut limit = hundred();
    for _ in 0..10_000 {
        let begun = limit.begin(10, at(1));
        limit.answered(Load::ByLatency, begun, at(1) + QUICK);
    }
    assert_eq!(limit.current(), 100);
    for _ in 0..10_000 {
        let begun = limit.begin(10, at(1));
        limit.answered(Load::ByLatency, begun, at(2));
    }
    assert_eq!(limit.current(), 100, "ten in flight are slow for another reason");
    window(&mut limit, at(3), QUICK, 100);
    assert_eq!(limit.current(), 200);
}

#[test]
fn a_tenth_may_be_slow() {
    let mut limit = hundred();
    for round in 1..5 {
        let before = limit.current();
        window(&mut limit, at(round * 10), at(9), before / 10);
        window(&mut limit, at(round * 10), QUICK, before - before / 10);
        assert!(limit.current() > before);
    }
}

/// A service that is far from its limit, of which one answer in a hundred takes long: the report of a large customer, a
/// collection of garbage. In simulated time: its load is that of requests that come at random.
#[test]
fn a_healthy_service_with_rare_slow_answers_refuses_next_to_nothing() {
    for concurrency in [8, 20, 40, 60] {
        let (mut limit, mut dice) = (AdaptiveLimit::new(TARGET, 4), 1u64);
        let mut next = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 40) as f64 / (1u64 << 24) as f64
        };
        // On average, with one answer in a hundred of ten times the quick ones.
        let each = QUICK.as_secs_f64() * (0.99 + 0.01 * 10.0);
        // Until then the first limit rises.
        let risen = 2_000;
        let (mut now, mut arrived, mut refused) = (0.0, 0, 0);
        let mut running: Vec<(f64, Begun)> = Vec::new();
        while arrived < 200_000 {
            now -= (1.0 - next()).ln() * each / f64::from(concurrency);
            running.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            while running.last().is_some_and(|(ends, _)| *ends <= now) {
                let (ends, begun) = running.pop().expect("it was there");
                limit.answered(Load::ByLatency, begun, Duration::from_secs_f64(ends));
            }
            arrived += 1;
            if running.len() >= limit.current() {
                refused += u32::from(arrived > risen);
                continue;
            }
            let takes = QUICK.as_secs_f64() * if next() < 0.01 { 10.0 } else { 1.0 };
            let begun = limit.begin(running.len() + 1, Duration::from_secs_f64(now));
            running.push((now + takes, begun));
        }
        let part = f64::from(refused) / f64::from(arrived);
        println!("{concurrency} at once: {:.4} % refused, limit {}", part * 100.0, limit.current());
        assert!(part < 0.0002, "{concurrency} at once: {refused} of {arrived} were refused");
    }
}

#[test]
fn it_stays_within_its_bounds() {
    let mut limit = AdaptiveLimit { least: 3.0, ..hundred() };
    for second in 1..100 {
        window(&mut limit, at(second * 10), at(1), 100);
    }
    assert_eq!(limit.current(), 3);
    let mut limit = AdaptiveLimit::new(TARGET, usize::MAX);
    window(&mut limit, at(1), QUICK, 2_000_000);
    assert_eq!(limit.current(), 1_000_000);
}

#[test]
fn a_clock_that_stands_still_or_goes_back_cuts_nothing() {
    let mut limit = hundred();
    for _ in 0..1_000 {
        let begun = limit.begin(limit.current(), at(5));
        limit.answered(Load::ByLatency, begun, at(5));
        limit.answered(Load::ByLatency, begun, at(1));
    }
    assert!(limit.current() > 100);
    window(&mut limit, at(5), at(5), 10_000);
    assert!(limit.current() >= 1);
}

#[test]
fn the_service_can_say_itself_that_it_has_too_much_to_do() {
    let mut limit = hundred();
    let begun = limit.begin(100, at(1));
    for _ in 0..11 {
        limit.answered(Load::of(StatusCode::SERVICE_UNAVAILABLE).unwrap(), begun, at(1));
    }
    assert_eq!(limit.current(), 90);
    assert_eq!(Load::of(StatusCode::INTERNAL_SERVER_ERROR), None, "a quick failure is no capacity");
    assert_eq!(Load::of(StatusCode::BAD_GATEWAY), None);
    assert_eq!(Load::of(StatusCode::CONFLICT), Some(Load::ByLatency));
}
