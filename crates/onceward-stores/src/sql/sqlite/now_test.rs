//! Tests of the time of an SQLite file.

use super::*;

struct At(i64);

impl Clock for At {
    fn now_us(&self) -> u64 {
        self.0.cast_unsigned()
    }
}

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Some day of this century.
const TODAY: i64 = 20_000 * DAY;

fn of(wall: i64, steady: i64, recorded: Recorded) -> (i64, i64) {
    let now = Now::of(&At(wall), &At(steady), recorded);
    (now.earliest_us, now.latest_us)
}

/// What a process that is opening a file now learns.
fn opened(wall: i64, seen: i64, distrusted: Option<i64>) -> (Recorded, Found) {
    let mut recorded = Recorded::default();
    let found = recorded.learn(&At(wall), &At(wall), seen, distrusted);
    (recorded, found)
}

#[test]
fn nothing_falls_due_by_a_jump_and_nothing_is_written_too_short() {
    let none = Recorded::default();
    assert_eq!(of(900, 100, none), (100, 900));
    assert_eq!(of(100, 900, none), (100, 900));
    assert!(of(i64::MAX, 1, none).1 > 0, "no clock becomes negative");
}

#[test]
fn a_start_within_ten_minutes_or_on_a_new_file_is_in_order() {
    for (seen, distrusted) in [(0, None), (TODAY, None), (TODAY - 600 * SECOND, Some(TODAY - DAY))] {
        let (recorded, found) = opened(TODAY, seen, distrusted);
        assert_eq!((recorded, found), (Recorded::default(), Found::InOrder), "{seen}");
    }
}

#[test]
fn a_start_at_1970_continues_from_the_recorded_time() {
    let (recorded, found) = opened(5 * SECOND, TODAY, None);
    assert_eq!(found, Found::Behind(TODAY - 5 * SECOND));
    // Nothing is due, and what is written is not due when the clock is right again.
    assert_eq!(of(6 * SECOND, 6 * SECOND, recorded), (6 * SECOND, TODAY + SECOND));
    // Right again, an hour later.
    let right = TODAY + 3_600 * SECOND;
    assert_eq!(of(right, 7 * SECOND, recorded), (TODAY + 2 * SECOND, right));
    let now = Now::of(&At(right), &At(7 * SECOND), recorded);
    assert_eq!(now.to_record(TODAY), Some((TODAY + 2 * SECOND, false)));
    assert_eq!(now.to_record(TODAY + 2 * SECOND), None, "once a second at most");
}

#[test]
fn a_start_with_a_clock_far_ahead_lets_nothing_fall_due_for_a_minute() {
    let ahead = TODAY + 2 * DAY;
    let (recorded, found) = opened(ahead, TODAY, None);
    assert_eq!(found, Found::FarAhead(2 * DAY));
    let after = |seconds: i64| of(ahead + seconds * SECOND, ahead + seconds * SECOND, recorded);
    assert_eq!(after(59), (TODAY + 59 * SECOND, ahead + 59 * SECOND));
    let distrusted = Now::of(&At(ahead + SECOND), &At(ahead + SECOND), recorded);
    assert_eq!(distrusted.to_record(0), Some((TODAY + SECOND, true)), "what is distrusted is not recorded");
    assert_eq!(after(60), (ahead + 60 * SECOND, ahead + 60 * SECOND));
    // Corrected meanwhile.
    assert_eq!(of(TODAY + 3_600 * SECOND, ahead + 61 * SECOND, recorded).0, TODAY + 3_600 * SECOND);
}

/// A command that ends within the minute could otherwise never believe the clock.
#[test]
fn a_later_start_believes_a_clock_that_was_distrusted_for_a_minute() {
    let first = TODAY + 2 * DAY;
    assert_eq!(opened(first + 59 * SECOND, TODAY, Some(first)).1, Found::FarAhead(2 * DAY + 59 * SECOND));
    assert_eq!(opened(first + 61 * SECOND, TODAY, Some(first)), (Recorded::default(), Found::InOrder));
    for (when, distrusted) in [("another distrust", first - DAY), ("a distrust that is to come", first + DAY)]
    {
        assert_eq!(opened(first, TODAY, Some(distrusted)).1, Found::FarAhead(2 * DAY), "{when}");
    }
}

#[test]
fn of_several_files_the_most_cautious_counts() {
    let ahead = TODAY + 2 * DAY;
    let (mut recorded, _) = opened(ahead, TODAY, None);
    assert_eq!(recorded.learn(&At(ahead), &At(ahead), ahead - SECOND, None), Found::InOrder);
    assert!(matches!(recorded.learn(&At(ahead), &At(ahead), TODAY + DAY, None), Found::FarAhead(_)));
    assert_eq!(of(ahead + SECOND, ahead + SECOND, recorded).0, TODAY + SECOND);
    recorded.learn(&At(ahead), &At(ahead), ahead + 5 * DAY, None);
    assert_eq!(of(ahead, ahead, recorded).1, ahead + 5 * DAY);
}
