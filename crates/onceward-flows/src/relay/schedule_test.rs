//! The decisions of a relay, step by step.

use super::*;
use crate::message::Message;

const LANE: u32 = 3;

fn row(position: i64, key: &str) -> OutboxRow {
    OutboxRow { lane: LANE, position, message: Message::new("t", "").with_ordering_key(key) }
}

fn with(rows: &[(i64, &str)]) -> Schedule {
    let mut schedule = Schedule::new(4_096);
    schedule.gain(LANE);
    schedule.reads(Instant::now());
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
    (0..RESTART_SHARES).for_each(|share| schedule.restart(share));
    schedule.reads(now);
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
    assert_eq!(schedule.reads(now).after, [(LANE, 5)]);
    let later = schedule.next_due().unwrap();
    assert_eq!(later, now + Duration::from_secs(1));
    assert_eq!(schedule.reads(later).after, [(LANE, 0)], "from before the message that failed");
    schedule.read(vec![row(1, "a"), row(2, "a"), row(3, "b"), row(4, "a"), row(5, "c")]);
    let again = take_all(&mut schedule, later);
    assert_eq!(positions(&again), [1]);
    assert_eq!(schedule.failed(&again[0].0, &again[0].1, later, pause), 2, "it is counted on");
    let later = schedule.next_due().unwrap();
    schedule.reads(later);
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

/// Where each lane counts its own positions.
#[test]
fn the_same_position_in_two_lanes_is_two_messages() {
    let mut schedule = Schedule::new(4_096);
    let mut rows = vec![row(1, "a"), row(1, "b")];
    rows[1].lane = LANE + 1;
    for row in &rows {
        schedule.gain(row.lane);
    }
    schedule.reads(Instant::now());
    schedule.read(rows);
    let taken = take_all(&mut schedule, Instant::now());
    assert_eq!(taken.len(), 2);
    schedule.published(&taken[0].0, &taken[0].1);
    let removed = schedule.take_to_remove();
    schedule.removed(&removed);
    assert_eq!(schedule.held(), 1);
}

/// Beyond the bound nothing is forgotten: the lane waits for the message that failed.
#[test]
fn a_key_that_fails_beyond_the_bound_is_not_overtaken_by_its_next_message() {
    let (mut schedule, now) = (with(&[(1, "a"), (2, "b"), (3, "b"), (4, "c")]), Instant::now());
    schedule.failing_max = 1;
    let taken = take_all(&mut schedule, now);
    assert_eq!(positions(&taken), [1, 2, 4]);
    let pause = |failures: u32| Duration::from_secs(failures.into());
    for (key, row) in &taken {
        schedule.failed(key, row, now, pause);
    }
    assert_eq!((schedule.held(), schedule.reads(now).after), (0, vec![]), "the lane pauses");
    assert_eq!(schedule.next_due(), Some(now + Duration::from_secs(1)));
    let later = now + Duration::from_secs(3);
    assert_eq!(schedule.reads(later).after, [(LANE, 0)]);
    let rows = [(1, "a"), (2, "b"), (3, "b"), (4, "c")];
    schedule.read(rows.iter().map(|(position, key)| row(*position, key)).collect());
    let again = take_all(&mut schedule, later);
    assert_eq!(positions(&again), [1, 2, 4], "b begins with the one that failed");
    // One that is known keeps its pause at the bound, too.
    assert_eq!(schedule.failed(&again[0].0, &again[0].1, later, pause), 2);
    assert_eq!(schedule.next_due(), Some(later + Duration::from_secs(2)));
    schedule.read(vec![row(1, "a")]);
    assert_eq!(take_all(&mut schedule, later).len(), 0, "a waits");
    schedule.published(&again[1].0, &again[1].1);
    assert_eq!(positions(&take_all(&mut schedule, later)), [3]);
}

/// A lane with many messages of one key leaves space and turns for the others.
#[test]
fn a_hot_lane_does_not_fill_the_memory() {
    let (mut schedule, now) = (Schedule::new(1_000), Instant::now());
    let lanes = 0..10;
    lanes.clone().for_each(|lane| schedule.gain(lane));
    let mut next = HashMap::new();
    // Everything is read and nothing is ever sent: the hot lanes have as many as are asked for.
    for _ in 0..100 {
        let reads = schedule.reads(now);
        let hot = reads.after.iter().filter(|(lane, _)| *lane < 9);
        let rows = hot.flat_map(|(lane, after)| (1..=50).map(move |n| (*lane, after + n)));
        let rows: Vec<OutboxRow> = rows
            .take(1_000_usize.saturating_sub(schedule.held()))
            .map(|(lane, position)| {
                *next.entry(lane).or_insert(0) += 1;
                OutboxRow { lane, ..row(position, &format!("hot{lane}")) }
            })
            .collect();
        schedule.read(rows);
    }
    assert!(schedule.held() < 1_000, "{} fill everything", schedule.held());
    assert!(schedule.reads(now).after.iter().any(|(lane, _)| *lane == 9), "the quiet lane is read");
}

#[test]
fn reads_begin_at_another_lane_each_time() {
    let (mut schedule, now) = (Schedule::new(1_000), Instant::now());
    (0..LANES).for_each(|lane| schedule.gain(lane));
    let firsts: HashSet<u32> = (0..LANES).map(|_| schedule.reads(now).after[0].0).collect();
    assert_eq!(firsts.len(), LANES as usize);
}

#[test]
fn lanes_that_were_added_to_are_read_alone_if_they_have_space_and_do_not_pause() {
    let now = Instant::now();
    let mut schedule = Schedule::new(4_096);
    (0..6).for_each(|lane| schedule.gain(lane));
    schedule.reads(now);
    schedule.read((1..=200).map(|position| row(position, "a")).collect());
    let reads = schedule.reads_of(&[1, LANE, 5, 99]);
    assert_eq!(reads.after, [(1, 0), (5, 0)], "lane 3 has enough, and lane 99 is another relay's");
    assert!(!schedule.has_space());
    let (key, first) = schedule.take(now).unwrap();
    schedule.failed(&key, &first, now, |_| Duration::from_secs(1));
    assert!(schedule.has_space(), "lane 3 is read again as soon as it is short of messages");
}

#[test]
fn what_a_read_finds_of_a_lane_that_was_set_back_meanwhile_is_not_taken_in() {
    let (mut schedule, now) = (with(&[(1, "a")]), Instant::now());
    schedule.failing_max = 0;
    let (key, first) = schedule.take(now).unwrap();
    assert_eq!(schedule.reads(now).after, [(LANE, 1)]);
    schedule.failed(&key, &first, now, |_| Duration::from_secs(1));
    // Began behind the message that has failed since.
    schedule.read(vec![row(2, "a")]);
    assert!(schedule.take(now).is_none(), "2 would overtake 1");
    let later = schedule.next_due().unwrap();
    assert_eq!(schedule.reads(later).after, [(LANE, 0)]);
}
