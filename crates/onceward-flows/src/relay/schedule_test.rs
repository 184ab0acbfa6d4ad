//! The decisions of a relay, step by step.

use super::*;
use crate::message::Message;

const LANE: u32 = 3;

fn row(position: i64, key: &str) -> OutboxRow {
    OutboxRow { lane: LANE, position, message: Message::new("t", "").with_ordering_key(key) }
}

fn with(rows: &[(i64, &str)]) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.gain(LANE);
    schedule.read(rows.iter().map(|(position, key)| row(*position, key)).collect());
    schedule
}

fn take_all(schedule: &mut Schedule, now: Instant) -> Vec<(Arc<str>, OutboxRow)> {
    std::iter::from_fn(|| schedule.take(now)).collect()
}

fn positions(taken: &[(Arc<str>, OutboxRow)]) -> Vec<i64> {
    taken.iter().map(|(_, row)| row.position).collect()
}

#[test]
fn one_message_of_a_key_is_in_flight_and_none_is_read_twice() {
    let (mut schedule, now) = (with(&[(1, "a"), (2, "a"), (3, "b")]), Instant::now());
    let taken = take_all(&mut schedule, now);
    assert_eq!(positions(&taken), [1, 3]);
    schedule.restart();
    schedule.read(vec![row(1, "a"), row(2, "a"), row(3, "b"), row(4, "b")]);
    assert_eq!(schedule.held(), 4);
    let (key, first) = &taken[0];
    schedule.published(key, first);
    schedule.read(vec![row(1, "a")]);
    assert_eq!(
        positions(&take_all(&mut schedule, now)),
        [2],
        "1 was published, whether it is removed or not"
    );
    let removed = schedule.take_to_remove();
    assert_eq!(removed, [(LANE, 1)]);
    schedule.removed(&removed);
    assert_eq!(schedule.held(), 3);
}

#[test]
fn a_failing_key_holds_up_no_other_and_comes_again_in_its_order() {
    let (mut schedule, now) = (with(&[(1, "a"), (2, "a"), (3, "b")]), Instant::now());
    let taken = take_all(&mut schedule, now);
    let pause = |failures: u32| Duration::from_secs(failures.into());
    let (a, first) = &taken[0];
    assert_eq!(schedule.failed(a, first, now, pause), 1);
    assert_eq!(schedule.held(), 1, "only b is in memory");
    schedule.read(vec![row(4, "a"), row(5, "c")]);
    assert_eq!(positions(&take_all(&mut schedule, now)), [5]);
    assert_eq!(schedule.cursors(now), [(LANE, 5)]);
    let later = schedule.next_due().unwrap();
    assert_eq!(later, now + Duration::from_secs(1));
    assert_eq!(schedule.cursors(later), [(LANE, 0)], "from before the message that failed");
    schedule.read(vec![row(1, "a"), row(2, "a"), row(3, "b"), row(4, "a"), row(5, "c")]);
    let again = take_all(&mut schedule, later);
    assert_eq!(positions(&again), [1]);
    assert_eq!(schedule.failed(&again[0].0, &again[0].1, later, pause), 2, "it is counted on");
    let later = schedule.next_due().unwrap();
    schedule.cursors(later);
    schedule.read(vec![row(1, "a"), row(2, "a"), row(4, "a")]);
    for expected in [1, 2, 4] {
        let (key, taken) = schedule.take(later).unwrap();
        assert_eq!(taken.position, expected);
        schedule.published(&key, &taken);
    }
}

#[test]
fn a_lost_lane_is_forgotten_and_what_was_in_flight_still_ends() {
    let (mut schedule, now) = (with(&[(1, "a"), (2, "a")]), Instant::now());
    let (key, first) = schedule.take(now).unwrap();
    schedule.lose(|lane| lane == LANE);
    assert_eq!(schedule.held(), 1, "the one in flight");
    schedule.read(vec![row(2, "a")]);
    assert_eq!(schedule.held(), 1, "a lane of others is not read");
    schedule.failed(&key, &first, now, |_| Duration::ZERO);
    assert_eq!((schedule.held(), schedule.next_due()), (0, None));
}

#[test]
fn what_was_not_removed_is_removed_later() {
    let (mut schedule, now) = (with(&[(1, "a")]), Instant::now());
    let (key, first) = schedule.take(now).unwrap();
    schedule.published(&key, &first);
    let places = schedule.take_to_remove();
    schedule.not_removed(places);
    assert!(schedule.has_to_remove());
}
