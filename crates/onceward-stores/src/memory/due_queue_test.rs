use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::{DueEntry, DueQueue, REMOVED_MAX};

fn entry(due_us: u64, slot: u32) -> DueEntry {
    (NonZeroU64::new(due_us).unwrap(), slot)
}

fn all(queue: &DueQueue) -> Vec<DueEntry> {
    std::iter::successors(queue.first_after(None), |last| queue.first_after(Some(*last))).collect()
}

#[test]
fn it_is_an_ordered_set() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..200 {
        let (mut queue, mut model) = (DueQueue::default(), BTreeSet::new());
        // Some lists grow at their end, as most do.
        let ascending = next(2);
        for at in 0..400 {
            let entry = entry(1 + ascending * at / 4 + next(20), u32::try_from(next(4)).unwrap());
            if next(5) < 3 {
                if model.insert(entry) {
                    queue.insert(entry);
                }
            } else {
                model.remove(&entry);
                queue.remove(entry);
            }
        }
        assert!(all(&queue).into_iter().eq(model.iter().copied()), "{model:?}");
        for entry in model {
            queue.remove(entry);
        }
        assert_eq!(queue.first_after(None), None);
    }
}

#[test]
fn removed_entries_do_not_pile_up() {
    let mut queue = DueQueue::default();
    for due_us in 1..100_000 {
        queue.insert(entry(due_us, 0));
        // The first stays, so that none of the others is at the front.
        if due_us > 1 {
            queue.remove(entry(due_us, 0));
        }
    }
    assert!(queue.queue.len() <= 4 * REMOVED_MAX, "{} entries", queue.queue.len());
    assert_eq!(all(&queue), [entry(1, 0)]);
}
