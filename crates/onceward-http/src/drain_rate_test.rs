//! Tests of the time after which a refused request should come again.

use super::*;

const MIDDLE: f64 = 0.5;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn it_follows_from_what_finishes_and_what_waits() {
    let drain = DrainRate::default();
    assert_eq!(drain.retry_after(seconds(100), 50, MIDDLE), SOON, "nothing is measured yet");
    for _ in 0..20 {
        drain.finished();
    }
    for _ in 0..59 {
        assert_eq!(drain.retry_after(seconds(100), 50, MIDDLE), SOON);
    }
    // 10 per second finish; 50 are running, and 30 per second were refused, which come back.
    assert_eq!(drain.retry_after(seconds(102), 50, MIDDLE), seconds(8));
    assert_eq!(drain.retry_after(seconds(102), 150, MIDDLE), seconds(18));
    assert_eq!(drain.retry_after(seconds(102), usize::MAX, MIDDLE), RETRY_AFTER_MAX);
}

#[test]
fn jitter_spreads_those_that_were_refused_together() {
    let drain = DrainRate::default();
    let (first, last) = (drain.retry_after(seconds(1), 1, 0.0), drain.retry_after(seconds(1), 1, 1.0));
    assert_eq!(last, first * 3);
    let chances: Vec<f64> = (0..100).map(|_| chance()).collect();
    assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
    assert!(chances.iter().any(|chance| *chance < 0.5) && chances.iter().any(|chance| *chance > 0.5));
}

#[test]
fn a_clock_that_stands_still_or_goes_back_divides_by_nothing() {
    let drain = DrainRate::default();
    for at in [0, 0, 5, 5, 2, 0, 5] {
        drain.finished();
        let after = drain.retry_after(seconds(at), usize::MAX, MIDDLE);
        assert!(after >= SOON / 2 && after <= RETRY_AFTER_MAX, "{after:?}");
    }
}

#[test]
fn an_old_measurement_is_not_used() {
    let drain = DrainRate::default();
    drain.retry_after(seconds(1), 1, MIDDLE);
    assert_eq!(drain.retry_after(seconds(4_000), 1_000, MIDDLE), SOON);
}
