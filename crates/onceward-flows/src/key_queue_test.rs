//! Order within a key, concurrency between keys, pauses.

use std::time::Duration;

use super::*;

fn taken(queue: &mut KeyQueue<u32>, now: Instant) -> Option<(String, u32)> {
    queue.take(now).map(|(key, item)| (key.to_string(), item))
}

#[test]
fn one_item_of_a_key_at_a_time_in_its_order() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for (key, item) in [("a", 1), ("a", 2), ("b", 3)] {
        queue.push(key, item);
    }
    let (a, first) = queue.take(now).unwrap();
    assert_eq!((&*a, first), ("a", 1));
    assert_eq!(taken(&mut queue, now), Some(("b".into(), 3)));
    assert_eq!(taken(&mut queue, now), None, "a is busy");
    queue.push("a", 4);
    queue.done(&a);
    assert_eq!(taken(&mut queue, now), Some(("a".into(), 2)));
    queue.done(&a);
    assert_eq!(taken(&mut queue, now), Some(("a".into(), 4)));
    queue.done(&a);
    assert_eq!(taken(&mut queue, now), None);
}

#[test]
fn what_failed_comes_again_before_its_successors_and_not_before_its_time() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    queue.push("a", 1);
    queue.push("a", 2);
    let (a, item) = queue.take(now).unwrap();
    let later = now + Duration::from_secs(1);
    queue.failed(&a, item, later);
    queue.push("a", 3);
    assert_eq!(taken(&mut queue, now), None);
    assert_eq!(queue.next_due(), Some(later));
    for expected in [1, 2, 3] {
        assert_eq!(taken(&mut queue, later), Some(("a".into(), expected)));
        queue.done(&a);
    }
    assert_eq!(taken(&mut queue, later), None);
}

#[test]
fn a_key_that_is_forgotten_begins_again() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    queue.push("a", 1);
    queue.push("a", 2);
    let (a, _) = queue.take(now).unwrap();
    assert_eq!(queue.forget(&a), [2]);
    queue.push("a", 3);
    assert_eq!(taken(&mut queue, now), Some(("a".into(), 3)));
}

#[test]
fn unwanted_items_go_and_busy_ones_stay() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for (key, item) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
        queue.push(key, item);
    }
    let (a, _) = queue.take(now).unwrap();
    let (b, three) = queue.take(now).unwrap();
    queue.failed(&b, three, now);
    assert_eq!(queue.remove(|item| *item < 4), 2, "2 and 3 are waiting");
    assert_eq!(taken(&mut queue, now), Some(("c".into(), 4)));
    assert_eq!(taken(&mut queue, now), None);
    queue.push("a", 5);
    queue.done(&a);
    assert_eq!(taken(&mut queue, now), Some(("a".into(), 5)));
}

#[test]
fn later_items_go_ahead_of_what_was_set_aside_until_its_time() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for item in [3, 4, 5] {
        queue.push("a", item);
    }
    let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
    let (a, three) = queue.take(now).unwrap();
    queue.set_aside(&a, three, soon);
    let (a, four) = queue.take(now).unwrap();
    queue.set_aside(&a, four, soon);
    let (a, five) = queue.take(now).unwrap();
    queue.set_aside(&a, five, later);
    assert_eq!(taken(&mut queue, now), None);
    assert_eq!(queue.next_due(), Some(soon));
    queue.push("a", 2);
    queue.push("a", 6);
    // Those that have just come do not wait for them, and are tried first.
    assert_eq!(taken(&mut queue, now), Some(("a".into(), 2)));
    assert_eq!(taken(&mut queue, soon), None);
    queue.done(&a);
    for expected in [6, 3, 4] {
        assert_eq!(taken(&mut queue, soon), Some(("a".into(), expected)));
        queue.done(&a);
    }
    assert_eq!(taken(&mut queue, soon), None);
    assert_eq!(taken(&mut queue, later), Some(("a".into(), 5)));
    assert!(queue.done(&a));
}

#[test]
fn what_was_set_aside_is_removed_and_forgotten_too() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for (key, item) in [("a", 1), ("b", 2), ("c", 3)] {
        queue.push(key, item);
        let (key, item) = queue.take(now).unwrap();
        queue.set_aside(&key, item, now);
    }
    assert_eq!(queue.remove(|item| *item == 1), 1);
    assert_eq!(queue.forget(&"b".into()), [2]);
    assert_eq!(taken(&mut queue, now), Some(("c".into(), 3)));
    assert_eq!(taken(&mut queue, now), None);
}

fn names(taken: &[(Arc<str>, u32)]) -> Vec<(&str, u32)> {
    taken.iter().map(|(key, item)| (&**key, *item)).collect()
}

#[test]
fn more_are_taken_from_other_keys_first_and_those_of_a_key_in_order() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for (key, item) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 50), ("b", 60), ("b", 5)] {
        queue.push(key, item);
    }
    let (a, _) = queue.take(now).unwrap();
    let more = queue.take_more(&a, 10, |item| *item < 50);
    assert_eq!(names(&more), [("b", 4), ("a", 2), ("a", 3)], "60 does not fit, and 5 must not overtake it");
    assert_eq!(taken(&mut queue, now), Some(("c".into(), 50)), "it was left where it was");
    assert_eq!(taken(&mut queue, now), None);
    let b = more[0].0.clone();
    queue.put_back(&a, [2, 3], None);
    queue.put_back(&b, [4], Some(now));
    for expected in [2, 3] {
        assert_eq!(taken(&mut queue, now), Some(("a".into(), expected)));
        if expected == 2 {
            assert_eq!(taken(&mut queue, now), Some(("b".into(), 4)), "the key of 3 is busy");
        }
        queue.done(&a);
    }
}

#[test]
fn no_more_are_taken_than_the_limit() {
    let (mut queue, now) = (KeyQueue::default(), Instant::now());
    for item in 0..6 {
        queue.push(["a", "b", "c"][item as usize % 3], item);
    }
    let (a, _) = queue.take(now).unwrap();
    assert_eq!(names(&queue.take_more(&a, 3, |_| true)), [("b", 1), ("c", 2), ("a", 3)]);
    assert_eq!(taken(&mut queue, now), None, "all keys are busy");
    queue.done(&a);
    let b: Arc<str> = "b".into();
    queue.done(&b);
    assert_eq!(taken(&mut queue, now), Some(("b".into(), 4)));
}
