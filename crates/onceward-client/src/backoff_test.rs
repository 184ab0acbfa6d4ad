//! Tests of the backoff: ceiling, jitter and server hints.

use proptest::prelude::*;

use super::*;

const MOST: Chance = Chance(u64::MAX);
const LEAST: Chance = Chance(0);

#[test]
fn the_ceiling_doubles_until_it_is_the_longest() {
    let backoff = JitteredBackoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
    let ceilings: Vec<u128> = (1..=6).map(|retry| backoff.ceiling(retry).as_millis()).collect();
    assert_eq!(ceilings, [100, 200, 400, 800, 1000, 1000]);
    assert_eq!(backoff.ceiling(0), backoff.ceiling(1));
    assert_eq!(backoff.ceiling(u32::MAX), Duration::from_secs(1));
}

#[test]
fn jitter_reaches_from_nothing_to_the_ceiling() {
    let backoff = JitteredBackoff::default();
    assert_eq!(backoff.pause(3, LEAST), Duration::ZERO);
    assert_eq!(backoff.pause(3, MOST), backoff.ceiling(3));
    assert_eq!(backoff.pause(3, Chance(u64::MAX / 2)), backoff.ceiling(3) / 2);
}

#[test]
fn absurd_settings_do_not_overflow() {
    let backoff = JitteredBackoff { first: Duration::MAX, longest: Duration::MAX };
    assert_eq!(backoff.ceiling(40), Duration::MAX);
    assert!(backoff.pause(40, MOST) > Duration::from_hours(24));
    assert_eq!(backoff.pause_after(1, Duration::MAX, MOST), Duration::MAX);
}

proptest! {
    #[test]
    fn no_retry_comes_before_the_hint(
        retry in 1_u32..50, hint in 0_u64..10_000_000, draw in any::<u64>()
    ) {
        let (backoff, hint) = (JitteredBackoff::default(), Duration::from_millis(hint));
        let pause = backoff.pause_after(retry, hint, Chance(draw));
        prop_assert!(pause >= hint);
        prop_assert!(pause <= hint + backoff.longest.max(hint / 10));
    }

    #[test]
    fn no_pause_is_longer_than_its_ceiling(retry in any::<u32>(), draw in any::<u64>()) {
        let backoff = JitteredBackoff::default();
        prop_assert!(backoff.pause(retry, Chance(draw)) <= backoff.ceiling(retry));
    }
}
