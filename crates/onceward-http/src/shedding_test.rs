//! Tests of which new work is admitted.

use super::*;

fn work(limit: usize) -> Work {
    let mut work = Work::new(Shedding::new(Duration::from_secs(1)).with_in_flight_min(limit));
    // A limit below the one that it starts with.
    while work.limit.current() > limit {
        let begun = work.limit.begin(work.limit.current(), Duration::MAX);
        for _ in 0..=work.limit.current() {
            work.limit.answered(Load::TooMuch, begun, Duration::MAX);
        }
    }
    work
}

fn fill(work: &mut Work, scope: &str, which: Try) -> (usize, Refused) {
    let mut admitted = 0;
    loop {
        match work.admits(scope, which) {
            Ok(()) => _ = work.begin(scope, Duration::ZERO),
            Err(refused) => return (admitted, refused),
        }
        admitted += 1;
    }
}

#[test]
fn retries_are_shed_before_first_tries() {
    let mut work = work(50);
    assert_eq!(fill(&mut work, "a", Try::Again), (40, Refused::Full));
    assert_eq!(fill(&mut work, "a", Try::First), (10, Refused::Full));
    work.end("a");
    assert_eq!(work.admits("a", Try::Again), Err(Refused::Full));
    assert_eq!(work.admits("a", Try::First), Ok(()));
}

#[test]
fn a_greedy_caller_leaves_space_for_others() {
    let mut work = work(50);
    work.begin("other", Duration::ZERO);
    assert_eq!(fill(&mut work, "greedy", Try::First), (39, Refused::Share));
    assert_eq!(fill(&mut work, "newcomer", Try::First), (10, Refused::Full));
    for _ in 0..39 {
        work.end("greedy");
    }
    for _ in 0..10 {
        work.end("newcomer");
    }
    work.end("other");
    assert!(work.scopes.is_empty() && work.in_flight == 0);
    assert_eq!(fill(&mut work, "alone", Try::First), (50, Refused::Full), "one caller may use all of it");
}

#[test]
fn the_smallest_limit_admits_something() {
    let mut work = work(1);
    assert_eq!(fill(&mut work, "a", Try::Again), (1, Refused::Full));
    work.end("a");
    assert_eq!(fill(&mut work, "b", Try::First), (1, Refused::Full));
}

#[test]
fn the_number_of_the_try_is_a_hint() {
    let which = |number: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ONCEWARD_TRY, http::HeaderValue::from_static(number));
        Try::of(&headers)
    };
    assert_eq!(Try::of(&HeaderMap::new()), Try::First);
    for first in ["1", "0", "", "two", "-2", "99999999999999999999"] {
        assert_eq!(which(first), Try::First, "{first}");
    }
    assert_eq!((which("2"), which("17")), (Try::Again, Try::Again));
}

#[test]
fn a_limit_or_a_latency_of_zero_is_refused() {
    let second = Duration::from_secs(1);
    assert!(Shedding::new(second).check().is_ok());
    for wrong in [
        Shedding::new(Duration::ZERO),
        Shedding::new(Duration::MAX),
        Shedding::new(second).with_in_flight_min(0),
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_are_returned_and_refusals_say_when_to_retry() {
    let shedder = Shedder::new(Shedding::new(Duration::from_secs(1)).with_in_flight_min(100));
    let id = |scope: &str| Id::new(scope, "POST /", "k").unwrap();
    let mut permits: Vec<_> = (0..100).map(|_| shedder.enter(&id("a"), Try::First).unwrap()).collect();
    let refused = shedder.enter(&id("a"), Try::First).unwrap_err();
    assert!(matches!(refused, Problem::Overloaded { retry_after } if !retry_after.is_zero()));
    assert_eq!(shedder.check(&id("b"), Try::First).unwrap_err().name(), "overloaded");
    permits.pop();
    let share = shedder.check(&id("b"), Try::First);
    assert_eq!(share, Ok(()));
    let _b = shedder.enter(&id("b"), Try::First).unwrap();
    permits.pop();
    assert_eq!(shedder.check(&id("a"), Try::First).unwrap_err().name(), "quota-exceeded");
    drop(permits);
    assert_eq!(shedder.state(), (100, 1));
}
