//! Tests of the retry budget, with a property test against an exact count.

use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_tenth_of_a_hundred_is_ten() {
    let mut budget = Budget::new(BudgetConfig::default().with_floor(0));
    for _ in 0..99 {
        budget.request(at(0));
    }
    assert_eq!((0..100).filter(|_| budget.retry(at(1))).count(), 9);
    budget.request(at(2));
    assert_eq!(
        (0..100).filter(|_| budget.retry(at(3))).count(),
        1,
        "the hundredth request pays for one more"
    );
}

#[test]
fn a_quiet_client_has_the_floor_and_a_busy_one_has_no_more_than_its_share() {
    let mut quiet = Budget::new(BudgetConfig::default());
    quiet.request(at(0));
    assert_eq!((0..100).filter(|_| quiet.retry(at(0))).count(), 3);
    let mut busy = Budget::new(BudgetConfig::default());
    (0..1000).for_each(|_| busy.request(at(0)));
    assert_eq!((0..1000).filter(|_| busy.retry(at(0))).count(), 100, "not 103");
}

#[test]
fn unused_budget_is_not_saved() {
    let mut budget = Budget::new(BudgetConfig::default().with_floor(0));
    (0..1000).for_each(|_| budget.request(at(0)));
    assert!(budget.retry(at(9_999)), "still in the window");
    assert!(!budget.retry(at(10_000)), "the requests have left it");
    assert!(!budget.retry(at(u64::MAX)), "and a jump of the clock changes nothing");
}

#[test]
fn a_clock_that_goes_back_gives_nothing_away() {
    let mut budget = Budget::new(BudgetConfig::default().with_floor(1));
    (0..20).for_each(|_| budget.request(at(60_000)));
    assert_eq!((0..10).filter(|_| budget.retry(at(0))).count(), 2);
    assert_eq!((0..10).filter(|_| budget.retry(at(60_000))).count(), 0, "it was counted in the newest slot");
}

#[test]
fn a_used_up_budget_says_when_to_ask_again() {
    let mut quiet = Budget::new(BudgetConfig::default());
    quiet.request(at(500));
    for millis in [600, 1_200, 4_700] {
        assert!(quiet.retry(at(millis)));
    }
    assert!(!quiet.retry(at(5_000)));
    assert_eq!(quiet.retry_in(at(5_000)), at(5_000), "when the first of the three leaves the window");
    assert!(!quiet.retry(at(9_999)) && quiet.retry(at(10_000)));
    assert_eq!(quiet.retry_in(at(10_000)), at(1_000), "the second one");
    let mut none = Budget::new(BudgetConfig::default().with_floor(0));
    assert_eq!(none.retry_in(at(300)), at(9_700), "only requests can pay: ask again in a window");
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Request,
    Retry,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![3 => Just(Event::Request), 2 => Just(Event::Retry)];
    prop::collection::vec((0_u64..700, event), 1..600)
}

proptest! {
    /// The promise, checked against a plain list of everything that ever happened: a retry passes
    /// exactly if the window with it holds no more than the share, or no more than the floor.
    #[test]
    fn the_budget_is_exact(
        events in events(), retries_per_million in 0_u32..1_500_000, floor in 0_u32..6
    ) {
        let mut budget = Budget::new(BudgetConfig::default().with_retries_per_million(retries_per_million).with_floor(floor));
        let (mut now, mut requests, mut retries) = (0_u64, Vec::new(), Vec::new());
        for (pause, event) in events {
            now += pause;
            let second = now / 1000;
            let recent = |seconds: &[u64]| seconds.iter().filter(|then| **then + 10 > second).count() as u64;
            match event {
                Event::Request => {
                    budget.request(at(now));
                    requests.push(second);
                }
                Event::Retry => {
                    let with_it = recent(&retries) + 1;
                    let share = with_it * 1_000_000 <= recent(&requests) * u64::from(retries_per_million);
                    let allowed = share || with_it <= u64::from(floor);
                    prop_assert_eq!(budget.retry(at(now)), allowed);
                    if allowed {
                        retries.push(second);
                    }
                }
            }
        }
        // And over the whole of it, where the floor is out of play, the share is never exceeded.
        if floor == 0 {
            prop_assert!(retries.len() as u64 * 1_000_000 <= requests.len() as u64 * u64::from(retries_per_million));
        }
    }
}
