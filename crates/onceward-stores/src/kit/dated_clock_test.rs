use super::*;

const NOON_S: u64 = 1_800_000_000;
const NOON_US: u64 = NOON_S * 1_000_000;

fn now_at(clock: &DatedClock, elapsed_us: i64) -> u64 {
    clock.stamp_at(elapsed_us).now_us
}

#[test]
fn it_is_within_a_second_and_soon_closer() {
    let clock = DatedClock::default();
    // The service shows 12:00:00.9 when this process has counted a second; an answer takes 2 ms.
    let service_at = |elapsed_us: i64| (NOON_US - 100_000).checked_add_signed(elapsed_us).unwrap();
    let learn = |elapsed_us: i64| {
        clock.learn_at(service_at(elapsed_us - 1_000) / 1_000_000, elapsed_us - 2_000, elapsed_us);
    };
    learn(1_000_000);
    let behind = |elapsed_us| service_at(elapsed_us).abs_diff(now_at(&clock, elapsed_us));
    assert!(behind(1_000_000) <= 1_002_000);
    for call in 1..300 {
        learn(1_000_000 + call * 10_000);
    }
    assert!(behind(4_000_000) < 15_000, "{}", behind(4_000_000));
}

#[test]
fn it_never_goes_back() {
    let clock = DatedClock::default();
    clock.learn_at(NOON_S, 0, 1_000);
    let shown = now_at(&clock, 50_000);
    clock.learn_at(NOON_S - 60, 60_000, 61_000);
    assert_eq!(now_at(&clock, 70_000), shown, "it stands until the service has caught up");
    assert!(now_at(&clock, 70_000_000) > shown);
}

#[test]
fn it_follows_the_service_where_the_process_counts_too_fast() {
    let clock = DatedClock::default();
    clock.learn_at(NOON_S, 0, 1_000);
    // After an hour of the service this process has counted 5 seconds more.
    let elapsed = 3_605_000_000;
    clock.learn_at(NOON_S + 3600, elapsed, elapsed + 1_000);
    let ahead = now_at(&clock, elapsed).saturating_sub(NOON_US + 3_600_000_000);
    assert!(ahead <= 1_000_000, "{ahead}");
}

#[test]
fn it_follows_the_service_after_this_machine_was_paused() {
    let clock = DatedClock::default();
    clock.learn_at(NOON_S, 0, 1_000);
    clock.learn_at(NOON_S + 7200, 2_000, 3_000);
    assert!(now_at(&clock, 3_000) >= NOON_US + 7_200_000_000);
}

/// The answer to a write tells whether its stamp was right.
#[test]
fn a_stamp_is_checked_by_the_answer_to_its_own_write() {
    let clock = DatedClock::default();
    clock.learn_at(NOON_S, 0, 1_000);
    let stamp = clock.stamp_at(500_000);
    // What was asked before says nothing about it.
    assert_eq!(clock.check(stamp), Checked::Unproven);
    clock.learn_at(NOON_S, 500_000, 502_000);
    assert_eq!(clock.check(stamp), Checked::Right);
    // Of two answers the one to the later call counts, in whichever order they come.
    clock.learn_at(NOON_S, 400_000, 503_000);
    assert_eq!(clock.check(stamp), Checked::Right);

    // The machine was paused for 5 s between the stamp and the call, and has not counted them.
    let stamp = clock.stamp_at(600_000);
    clock.learn_at(NOON_S + 5, 600_001, 602_000);
    assert_eq!(clock.check(stamp), Checked::Behind);
    // The next stamp is right again.
    let stamp = clock.stamp_at(603_000);
    clock.learn_at(NOON_S + 5, 603_001, 605_000);
    assert_eq!(clock.check(stamp), Checked::Right);

    // An answer that took 5 s: the time in it may be that of its end, or the process was paused before it asked.
    let stamp = clock.stamp_at(700_000);
    clock.learn_at(NOON_S + 10, 700_001, 5_700_000);
    assert_eq!(clock.check(stamp), Checked::Unproven);
}

#[test]
fn only_a_lease_needs_a_proof_and_what_never_falls_due_needs_nothing() {
    let record = |state, due_in: Option<u64>| {
        Record::new(state, &b""[..]).with_due_in(due_in.map(Duration::from_secs))
    };
    for (checked, state, due_in, is_enough, is_repeated) in [
        (Checked::Right, State::Held, Some(1), true, false),
        (Checked::Unproven, State::Held, Some(1), false, false),
        (Checked::Unproven, State::Done, Some(1), true, false),
        (Checked::Behind, State::Held, Some(1), false, true),
        (Checked::Behind, State::Done, Some(1), false, true),
        (Checked::Behind, State::Unknown, None, true, false),
    ] {
        let record = record(state, due_in);
        assert_eq!(checked.is_enough(&record), is_enough, "{checked:?} {record:?}");
        assert_eq!(checked.must_be_repeated(&record), is_repeated, "{checked:?} {record:?}");
    }
}

#[test]
fn without_a_date_there_is_no_clock() {
    let clock = DatedClock::default();
    clock.learn(None, 0);
    clock.learn(Some(b"yesterday"), 0);
    let error = clock.require("DynamoDB").unwrap_err();
    assert!(error.to_string().contains("no Date field"), "{error}");
    clock.learn(Some(b"Fri, 15 Jan 2027 08:00:00 GMT"), DatedClock::elapsed_us());
    clock.require("DynamoDB").unwrap();
    assert!(clock.now_us().abs_diff(NOON_US) < 60_000_000, "{}", clock.now_us());
}

#[cfg(feature = "etcd")]
#[test]
fn servers_whose_clocks_differ_are_told() {
    let bounds = |date_s: u64, called_us, answered_us| {
        let clock = DatedClock::default();
        clock.learn_at(date_s, called_us, answered_us);
        clock.last().unwrap()
    };
    let here = bounds(NOON_S, 0, 2_000);
    assert_eq!(too_far_apart(here, bounds(NOON_S + 1, 5_000, 7_000)), None);
    assert_eq!(too_far_apart(here, bounds(NOON_S + 2, 5_000, 7_000)), None, "it may be one second");
    for date_s in [NOON_S + 5, NOON_S - 5] {
        let apart = too_far_apart(here, bounds(date_s, 5_000, 7_000)).unwrap();
        assert!(apart >= Duration::from_millis(3_900), "{apart:?}");
    }
}
