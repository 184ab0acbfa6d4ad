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
